"""The rules of MinAtar's five games (Young and Tian 2019, arXiv 1903.03176), for R games at once.

Written from the paper and from gymnax 1.0.1 (Apache-2.0), which documents the rules and the order
of events; `tests/envs/test_minatar.py` compares every step with the canonical package. A game holds
arrays with leading axis R, and no row depends on another. Positions are x (column) and y (row, 0 at
the top) on a board of 10 x 10 cells.
"""

from typing import Protocol

import numpy as np

SIDE = 10
NOOP, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
"""The full set of actions, shared by all games."""

_GONE = -9  # the x of an entity that has left the board, far from every cell


class Game(Protocol):
    """R games of one kind."""

    channels: int
    """Binary planes of a frame, one a kind of object."""
    actions: tuple[int, ...]
    """The minimal set: actions that have an effect."""
    draws: int
    """D, uniform numbers in [0, 1) that a start or a step may use."""

    def __init__(self, num_games: int):
        """Allocates the state of R games; each must be started before its first step."""

    def start(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        """Starts the games `rows [M] int` with the numbers `[M, D]`."""

    def step(self, action: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One step of all games.

        Args:
            action: `[R]`, of the full set.
            uniform: `[R, D]`.

        Returns:
            Rewards `[R]`, and whether the games are over `[R] bool`.
        """

    def draw(self, frame: np.ndarray) -> None:
        """Draws the boards on zeros `[R, 10, 10, channels or more] uint8`."""


class Asterix:
    """Collect gold and avoid enemies, which cross the board in eight lanes, faster and faster."""

    channels, actions, draws = 4, (NOOP, LEFT, UP, RIGHT, DOWN), 3
    _RAMP_INTERVAL = 100

    def __init__(self, num_games: int):
        """See `Game`."""
        self._rows = np.arange(num_games)
        self.x, self.y = np.zeros((2, num_games), np.int64)
        self.spawn_speed, self.spawn_timer = np.zeros((2, num_games), np.int64)
        self.move_speed, self.move_timer = np.zeros((2, num_games), np.int64)
        self.ramp_timer, self.ramp_index = np.zeros((2, num_games), np.int64)
        # Lane i has at most one entity, in row i + 1; _GONE where it is empty.
        self.entity_x = np.full((num_games, 8), _GONE)
        self.is_gold, self.goes_right = np.zeros((2, num_games, 8), bool)

    def start(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        """See `Game`."""
        self.x[rows] = self.y[rows] = 5
        self.spawn_speed[rows] = self.spawn_timer[rows] = 10
        self.move_speed[rows] = self.move_timer[rows] = 5
        self.ramp_timer[rows], self.ramp_index[rows] = self._RAMP_INTERVAL, 0
        self.entity_x[rows] = _GONE

    def step(self, action: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Game`."""
        self._spawn(np.flatnonzero(self.spawn_timer == 0), uniform)
        self.x = _moved(self.x, action, LEFT, RIGHT, 0, 9)
        self.y = _moved(self.y, action, UP, DOWN, 1, 8)
        gold, enemy = self._collide()
        moving = self.move_timer == 0
        self.move_timer[moving] = self.move_speed[moving]
        there = moving[:, None] & (self.entity_x != _GONE)
        self.entity_x += there * np.where(self.goes_right, 1, -1)
        self.entity_x[(self.entity_x < 0) | (self.entity_x > 9)] = _GONE
        more_gold, more_enemy = self._collide()
        self.spawn_timer -= 1
        self.move_timer -= 1
        self._ramp()
        return gold.astype(np.int64) + more_gold, enemy | more_enemy

    def _spawn(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        self.spawn_timer[rows] = self.spawn_speed[rows]
        free = self.entity_x[rows] == _GONE
        # The n-th of the free lanes, n uniform; no entity comes where all lanes are taken.
        nth = (uniform[rows, 2] * free.sum(axis=1)).astype(np.int64)
        rows, lane = rows[free.any(axis=1)], (free.cumsum(axis=1) > nth[:, None]).argmax(axis=1)
        lane = lane[free.any(axis=1)]
        right = uniform[rows, 0] < 0.5
        self.entity_x[rows, lane] = np.where(right, 0, 9)
        self.goes_right[rows, lane] = right
        self.is_gold[rows, lane] = uniform[rows, 1] < 1 / 3

    def _collide(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether the player meets gold, which then vanishes, and whether an enemy."""
        lane = self.y - 1
        met = self.entity_x[self._rows, lane] == self.x
        gold = met & self.is_gold[self._rows, lane]
        self.entity_x[self._rows[gold], lane[gold]] = _GONE
        return gold, met & ~gold

    def _ramp(self) -> None:
        can = (self.spawn_speed > 1) | (self.move_speed > 1)
        due = can & (self.ramp_timer < 0)
        self.ramp_timer = np.where(due, self._RAMP_INTERVAL, self.ramp_timer - can)
        self.move_speed -= due & (self.move_speed > 1) & (self.ramp_index % 2 == 1)
        self.spawn_speed -= due & (self.spawn_speed > 1)
        self.ramp_index += due

    def draw(self, frame: np.ndarray) -> None:
        """Planes: player, enemy, trail, gold."""
        frame[self._rows, self.y, self.x, 0] = 1
        row, lane = np.nonzero(self.entity_x != _GONE)
        x = self.entity_x[row, lane]
        frame[row, lane + 1, x, np.where(self.is_gold[row, lane], 3, 1)] = 1
        _draw_trails(frame, 2, row, lane + 1, x, self.goes_right[row, lane])


class Breakout:
    """Bounce a ball off a paddle to break three rows of bricks; after the last, all come again."""

    channels, actions, draws = 4, (NOOP, LEFT, RIGHT), 1

    def __init__(self, num_games: int):
        """See `Game`."""
        self._rows = np.arange(num_games)
        self.x, self.y, self.dx, self.dy = np.zeros((4, num_games), np.int64)
        self.last_x, self.last_y, self.paddle = np.zeros((3, num_games), np.int64)
        self.bricks = np.zeros((num_games, SIDE, SIDE), bool)
        self.in_bricks = np.zeros(num_games, bool)

    def start(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        """See `Game`."""
        from_left = uniform[:, 0] < 0.5
        self.x[rows] = self.last_x[rows] = np.where(from_left, 0, 9)
        self.y[rows] = self.last_y[rows] = 3
        self.dx[rows], self.dy[rows] = np.where(from_left, 1, -1), 1
        self.paddle[rows], self.in_bricks[rows] = 4, False
        self.bricks[rows] = False
        self.bricks[rows, 1:4] = True

    def step(self, action: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Game`."""
        self.paddle = _moved(self.paddle, action, LEFT, RIGHT, 0, 9)
        self.last_x, self.last_y = self.x, self.y
        x, y = self.x + self.dx, self.y + self.dy
        self.dx = np.where((x < 0) | (x > 9), -self.dx, self.dx)
        x = x.clip(0, 9)
        at_top = y < 0
        y = y.clip(0)
        at_brick = ~at_top & self.bricks[self._rows, y, x]
        # A ball that meets a brick right after breaking one passes through it.
        breaks = at_brick & ~self.in_bricks
        self.in_bricks = at_brick
        self.bricks[self._rows[breaks], y[breaks], x[breaks]] = False
        at_bottom = ~at_brick & (y == 9)
        empty = at_bottom & ~self.bricks.any(axis=(1, 2))
        self.bricks[empty, 1:4] = True
        # The paddle is below the ball's old column, or only below the new one.
        straight = at_bottom & (self.last_x == self.paddle)
        edge = at_bottom & ~straight & (x == self.paddle)
        bounces = breaks | straight | edge
        self.x, self.y = x, np.where(bounces, self.last_y, y)
        self.dx = np.where(edge, -self.dx, self.dx)
        self.dy = np.where(bounces | at_top, -self.dy, self.dy)
        return breaks, at_bottom & ~bounces

    def draw(self, frame: np.ndarray) -> None:
        """Planes: paddle, ball, trail, brick."""
        frame[self._rows, 9, self.paddle, 0] = 1
        frame[self._rows, self.y, self.x, 1] = 1
        frame[self._rows, self.last_y, self.last_x, 2] = 1
        frame[..., 3] = self.bricks


class Freeway:
    """Cross a road of eight lanes, again and again, for 2,500 steps; cars send the player back."""

    channels, actions, draws = 7, (NOOP, UP, DOWN), 16
    _REST = 3  # steps between two moves of the player
    _LENGTH = 2500

    def __init__(self, num_games: int):
        """See `Game`."""
        self._rows = np.arange(num_games)
        self.y, self.rest, self.time = np.zeros((3, num_games), np.int64)
        # The car of lane i is in row i + 1. It moves one cell every `slowness` + 1 steps.
        self.car_x, self.slowness, self.timer = np.zeros((3, num_games, 8), np.int64)
        self.goes_right = np.zeros((num_games, 8), bool)

    def start(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        """See `Game`."""
        self.y[rows], self.rest[rows], self.time[rows] = 9, self._REST, 0
        self.car_x[rows] = 0
        self._send_cars(rows, uniform)

    def _send_cars(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        """Draws new speeds and directions of the cars, and keeps their positions."""
        self.slowness[rows] = self.timer[rows] = 1 + (5 * uniform[:, :8]).astype(np.int64)
        self.goes_right[rows] = uniform[:, 8:] >= 0.5

    def step(self, action: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Game`."""
        moves = (self.rest == 0) & ((action == UP) | (action == DOWN))
        self.y = np.where(moves, _moved(self.y, action, UP, DOWN, 0, 9), self.y)
        self.rest[moves] = self._REST
        arrived = self.y == 0
        self.y[arrived] = 9
        self._send_cars(arrived, uniform[arrived])

        # A car hits the player before or after it moves. Row 9 has no car.
        lane = self.y.clip(1, 8) - 1
        hit = self.car_x[self._rows, lane] == 4
        moving = self.timer == 0
        self.car_x = (self.car_x + moving * np.where(self.goes_right, 1, -1)) % SIDE
        self.timer = np.where(moving, self.slowness, self.timer - 1)
        hit |= self.car_x[self._rows, lane] == 4
        self.y[hit] = 9
        self.rest -= self.rest > 0
        self.time += 1
        return arrived, self.time > self._LENGTH

    def draw(self, frame: np.ndarray) -> None:
        """Planes: player, car, and trails of five speeds, the fastest first."""
        frame[self._rows, self.y, 4, 0] = 1
        row, lane = self._rows[:, None], np.arange(8)
        frame[row, lane + 1, self.car_x, 1] = 1
        behind = (self.car_x - np.where(self.goes_right, 1, -1)) % SIDE
        frame[row, lane + 1, behind, 1 + self.slowness] = 1


class SpaceInvaders:
    """Shoot aliens that come down and shoot back; each new wave is faster."""

    channels, actions, draws = 6, (NOOP, LEFT, RIGHT, FIRE), 0
    _COOL_DOWN, _ALIEN_COOL_DOWN = 5, 10

    def __init__(self, num_games: int):
        """See `Game`."""
        self._rows = np.arange(num_games)
        self.x, self.shot_timer, self.direction = np.zeros((3, num_games), np.int64)
        self.interval, self.alien_timer, self.alien_shot_timer = np.zeros((3, num_games), np.int64)
        self.aliens, self.bullets, self.alien_bullets = np.zeros(
            (3, num_games, SIDE, SIDE), bool
        )  # [R, y, x]

    def start(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        """See `Game`."""
        self.x[rows], self.shot_timer[rows], self.direction[rows] = 5, 0, -1
        self.interval[rows] = self.alien_timer[rows] = 12
        self.alien_shot_timer[rows] = self._ALIEN_COOL_DOWN
        self.bullets[rows] = self.alien_bullets[rows] = self.aliens[rows] = False
        self.aliens[rows, :4, 2:8] = True

    def step(self, action: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Game`."""
        fires = (action == FIRE) & (self.shot_timer == 0)
        self.shot_timer[fires] = self._COOL_DOWN
        # A bullet moves up in the step in which it is fired.
        self.bullets[:, :-1] = self.bullets[:, 1:]
        self.bullets[:, -1] = False
        self.bullets[self._rows[fires], 8, self.x[fires]] = True
        self.alien_bullets[:, 1:] = self.alien_bullets[:, :-1].copy()
        self.alien_bullets[:, 0] = False
        self.x = _moved(self.x, action, LEFT, RIGHT, 0, 9)
        over = self.alien_bullets[self._rows, 9, self.x] | self.aliens[self._rows, 9, self.x]
        over |= self._move_aliens(np.flatnonzero(self.alien_timer == 0))
        self._shoot_back(np.flatnonzero(self.alien_shot_timer == 0))
        killed = self.aliens & self.bullets
        self.aliens &= ~killed
        self.bullets &= ~killed
        self.shot_timer -= self.shot_timer > 0
        self.alien_timer -= 1
        self.alien_shot_timer -= 1
        cleared = ~self.aliens.any(axis=(1, 2))
        self.interval -= cleared & (self.interval > 6)
        self.aliens[cleared, :4, 2:8] = True
        return killed.sum(axis=(1, 2)), over

    def _move_aliens(self, rows: np.ndarray) -> np.ndarray:
        """Moves the aliens of `rows` sideways, or down at an edge; `[R] bool`: games over."""
        over = np.zeros(len(self._rows), bool)
        aliens, direction = self.aliens[rows], self.direction[rows]
        self.alien_timer[rows] = np.minimum(aliens.sum(axis=(1, 2)), self.interval[rows])
        edge = np.where(direction < 0, 0, 9)
        turns = aliens[np.arange(len(rows)), :, edge].any(axis=1)
        self.direction[rows] = np.where(turns, -direction, direction)
        over[rows] = turns & aliens[:, 9].any(axis=1)
        sideways = np.where((direction < 0)[:, None, None], np.roll(aliens, -1, 2),
                            np.roll(aliens, 1, 2))  # fmt: skip
        moved = np.where(turns[:, None, None], np.roll(aliens, 1, 1), sideways)
        self.aliens[rows] = moved
        over[rows] |= moved[np.arange(len(rows)), 9, self.x[rows]]
        return over

    def _shoot_back(self, rows: np.ndarray) -> None:
        """The lowest alien in the column nearest to the player shoots; the left column on a tie."""
        self.alien_shot_timer[rows] = self._ALIEN_COOL_DOWN
        aliens = self.aliens[rows]
        rows, aliens = rows[aliens.any(axis=(1, 2))], aliens[aliens.any(axis=(1, 2))]
        distance = np.abs(np.arange(SIDE) - self.x[rows, None])
        x = np.where(aliens.any(axis=1), distance, SIDE).argmin(axis=1)
        y = 9 - aliens[np.arange(len(rows)), ::-1, x].argmax(axis=1)
        self.alien_bullets[rows, y, x] = True

    def draw(self, frame: np.ndarray) -> None:
        """Planes: cannon, alien, aliens that go left, right, the player's bullets, the aliens'."""
        frame[self._rows, 9, self.x, 0] = 1
        frame[..., 1] = self.aliens
        left = (self.direction < 0)[:, None, None]
        frame[..., 2], frame[..., 3] = self.aliens & left, self.aliens & ~left
        frame[..., 4], frame[..., 5] = self.bullets, self.alien_bullets


class _Crowd:
    """Entities of one kind on the boards of R games, in the order in which they came.

    An entity that is gone keeps its place, with x = `_GONE`, until places run out.
    """

    def __init__(self, num_games: int):
        self.x = np.full((num_games, 64), _GONE)
        self.y, self.timer, self.shot_timer = np.zeros((3, num_games, 64), np.int64)
        self.goes_right = np.zeros((num_games, 64), bool)
        self.size = np.zeros(num_games, np.int64)  # places taken

    def clear(self, rows: np.ndarray) -> None:
        """Empties the boards `rows`."""
        self.x[rows], self.size[rows] = _GONE, 0

    def add(self, rows, x, y, goes_right, timer=0, shot_timer=0) -> None:
        """Adds one entity to each of the boards `rows [M] int`, in order; rows may repeat."""
        if not len(rows):
            return
        if self.size.max() + SIDE >= self.x.shape[1]:
            self._close_ranks()
        # If a row repeats, its n-th entity goes to the n-th free place.
        nth = np.arange(len(rows)) - np.searchsorted(rows, rows)
        place = self.size[rows] + nth
        self.x[rows, place], self.y[rows, place] = x, y
        self.goes_right[rows, place] = goes_right
        self.timer[rows, place], self.shot_timer[rows, place] = timer, shot_timer
        np.add.at(self.size, rows, 1)

    def _close_ranks(self) -> None:
        order = np.argsort(self.x == _GONE, axis=1, kind="stable")
        for name in ("x", "y", "timer", "shot_timer", "goes_right"):
            setattr(self, name, np.take_along_axis(getattr(self, name), order, axis=1))
        self.size = (self.x != _GONE).sum(axis=1)

    def advance(self, interval: np.ndarray | int | None = None) -> None:
        """Moves all by a cell; with `interval`, those whose timer is 0, and restarts the timer."""
        if interval is None:
            moving = self.x != _GONE
        else:
            moving = (self.timer == 0) & (self.x != _GONE)
            interval = np.broadcast_to(np.asarray(interval)[..., None], self.timer.shape)
            self.timer = np.where(moving, interval, self.timer - 1)
        self.x += moving * np.where(self.goes_right, 1, -1)
        self.x[(self.x < 0) | (self.x > 9)] = _GONE

    def at(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """`[R, K] bool`: whether an entity is in the cell (x, y) `[R]` of its board."""
        return (self.x == x[:, None]) & (self.y == y[:, None])


class Seaquest:
    """Shoot fish and submarines, save divers, and come up for air in time."""

    channels, actions, draws = 10, (NOOP, LEFT, UP, RIGHT, DOWN, FIRE), 5
    _OXYGEN, _COOL_DOWN, _ENEMY_COOL_DOWN, _DIVER_INTERVAL, _MOVE_INTERVAL = 200, 5, 10, 30, 5

    def __init__(self, num_games: int):
        """See `Game`."""
        self._rows = np.arange(num_games)
        self.x, self.y, self.oxygen, self.saved = np.zeros((4, num_games), np.int64)
        self.spawn_speed, self.spawn_timer, self.diver_timer = np.zeros((3, num_games), np.int64)
        self.move_speed, self.ramp_index, self.shot_timer = np.zeros((3, num_games), np.int64)
        self.faces_right, self.at_surface = np.zeros((2, num_games), bool)
        self.bullets, self.enemy_bullets = _Crowd(num_games), _Crowd(num_games)
        self.fish, self.subs, self.divers = (_Crowd(num_games) for _ in range(3))

    def start(self, rows: np.ndarray, uniform: np.ndarray) -> None:
        """See `Game`."""
        self.x[rows], self.y[rows], self.faces_right[rows] = 5, 0, False
        self.oxygen[rows], self.saved[rows], self.at_surface[rows] = self._OXYGEN, 0, True
        self.spawn_speed[rows] = self.spawn_timer[rows] = 20
        self.diver_timer[rows] = self._DIVER_INTERVAL
        self.move_speed[rows] = self._MOVE_INTERVAL
        self.ramp_index[rows] = self.shot_timer[rows] = 0
        for crowd in (self.bullets, self.enemy_bullets, self.fish, self.subs, self.divers):
            crowd.clear(rows)

    def step(self, action: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Game`."""
        self._spawn(uniform)
        self._act(action)
        self.bullets.advance()
        reward = self._shoot_down(self.fish) + self._shoot_down(self.subs)
        self._pick_up()
        self.divers.advance(self._MOVE_INTERVAL)
        self._pick_up()

        over = self.subs.at(self.x, self.y).any(axis=1)
        self.subs.advance(self.move_speed)
        over |= self.subs.at(self.x, self.y).any(axis=1)
        self._shoot_back()  # also submarines that are shot in this step
        reward += self._shoot_down(self.subs)
        over |= self.enemy_bullets.at(self.x, self.y).any(axis=1)
        self.enemy_bullets.advance()
        over |= self.enemy_bullets.at(self.x, self.y).any(axis=1)
        over |= self.fish.at(self.x, self.y).any(axis=1)
        self.fish.advance(self.move_speed)
        over |= self.fish.at(self.x, self.y).any(axis=1)
        reward += self._shoot_down(self.fish)

        self.spawn_timer -= self.spawn_timer > 0
        self.diver_timer -= self.diver_timer > 0
        self.shot_timer -= self.shot_timer > 0
        rescued, drowned = self._breathe()
        return reward + rescued, over | drowned

    def _spawn(self, uniform: np.ndarray) -> None:
        due = self.spawn_timer == 0
        self.spawn_timer[due] = self.spawn_speed[due]
        right, is_sub = uniform[:, 0] < 0.5, uniform[:, 1] < 1 / 3
        y = 1 + (8 * uniform[:, 2]).astype(np.int64)
        # Nothing comes in against the traffic of a row.
        for crowd in (self.fish, self.subs):
            meets = (crowd.x != _GONE) & (crowd.y == y[:, None])
            due &= ~(meets & (crowd.goes_right != right[:, None])).any(axis=1)
        for crowd, rows in ((self.subs, due & is_sub), (self.fish, due & ~is_sub)):
            rows = np.flatnonzero(rows)
            crowd.add(rows, np.where(right, 0, 9)[rows], y[rows], right[rows],
                      self.move_speed[rows], self._ENEMY_COOL_DOWN)  # fmt: skip
        rows = np.flatnonzero(self.diver_timer == 0)
        self.diver_timer[rows] = self._DIVER_INTERVAL
        right, y = uniform[rows, 3] < 0.5, 1 + (8 * uniform[rows, 4]).astype(np.int64)
        self.divers.add(rows, np.where(right, 0, 9), y, right, self._MOVE_INTERVAL)

    def _act(self, action: np.ndarray) -> None:
        rows = np.flatnonzero((action == FIRE) & (self.shot_timer == 0))
        self.shot_timer[rows] = self._COOL_DOWN
        self.bullets.add(rows, self.x[rows], self.y[rows], self.faces_right[rows])
        self.x = _moved(self.x, action, LEFT, RIGHT, 0, 9)
        self.y = _moved(self.y, action, UP, DOWN, 0, 8)
        self.faces_right = ((action == RIGHT) | self.faces_right) & (action != LEFT)

    def _shoot_down(self, targets: _Crowd) -> np.ndarray:
        """Removes each bullet that meets a target, with the first such target; `[R]`, how many.

        A cell never holds two of the player's bullets: each bullet is ahead of the next one, or
        they move apart.
        """
        bullets, hits = self.bullets, np.zeros(len(self._rows), np.int64)
        for row, place in zip(*np.nonzero(bullets.x != _GONE), strict=True):
            met = (targets.x[row] == bullets.x[row, place]) & (
                targets.y[row] == bullets.y[row, place]
            )
            if met.any():
                targets.x[row, met.argmax()] = bullets.x[row, place] = _GONE
                hits[row] += 1
        return hits

    def _pick_up(self) -> None:
        """Takes divers aboard, six at most."""
        met = self.divers.at(self.x, self.y)
        met &= met.cumsum(axis=1) <= 6 - self.saved[:, None]
        self.divers.x[met] = _GONE
        self.saved += met.sum(axis=1)

    def _shoot_back(self) -> None:
        subs = self.subs
        there = subs.x != _GONE
        shoots = there & (subs.shot_timer == 0)
        subs.shot_timer = np.where(shoots, self._ENEMY_COOL_DOWN, subs.shot_timer - 1)
        rows, _ = np.nonzero(shoots)
        self.enemy_bullets.add(rows, subs.x[shoots], subs.y[shoots], subs.goes_right[shoots])

    def _breathe(self) -> tuple[np.ndarray, np.ndarray]:
        """Uses or renews the oxygen; reward of a full rescue, and whether games are over."""
        over = self.oxygen <= 0
        below = self.y > 0
        surfaces = ~below & ~self.at_surface
        over |= surfaces & (self.saved == 0)
        renews = surfaces & (self.saved != 0)
        self.oxygen -= below
        self.at_surface = ~below & (self.at_surface | renews)
        full = renews & (self.saved == 6)
        reward = np.where(full, self.oxygen * 10 // self._OXYGEN, 0)
        self.oxygen[renews] = self._OXYGEN
        self.saved[full] = 0
        self.saved -= renews  # -1 after a full rescue, as in the canonical package
        ramps = renews & ((self.spawn_speed > 1) | (self.move_speed > 2))
        self.move_speed -= ramps & (self.move_speed > 2) & (self.ramp_index % 2 == 1)
        self.spawn_speed -= ramps & (self.spawn_speed > 1)
        self.ramp_index += ramps
        return reward, over

    def draw(self, frame: np.ndarray) -> None:
        """Planes of the board's objects; row 9 has gauges of oxygen and of the divers aboard."""
        frame[self._rows, self.y, self.x, 0] = 1
        frame[self._rows, self.y, self.x + np.where(self.faces_right, -1, 1), 1] = 1
        cells = np.arange(SIDE)
        frame[:, 9, :, 7] = cells < self.oxygen.clip(0)[:, None] * 10 // self._OXYGEN
        frame[:, 9, :, 8] = (cells >= 9 - self.saved[:, None]) & (cells < 9)
        for plane, crowd, leaves_trail in (
            (2, self.bullets, False), (4, self.enemy_bullets, False),
            (5, self.fish, True), (6, self.subs, True), (9, self.divers, True),
        ):  # fmt: skip
            row, place = np.nonzero(crowd.x != _GONE)
            x, y = crowd.x[row, place], crowd.y[row, place]
            frame[row, y, x, plane] = 1
            if leaves_trail:
                _draw_trails(frame, 3, row, y, x, crowd.goes_right[row, place])


def _moved(
    position: np.ndarray, action: np.ndarray, back: int, forth: int, least: int, most: int
) -> np.ndarray:
    """Positions `[R]` after the actions, no further than `least` and `most`."""
    return (position + (action == forth) - (action == back)).clip(least, most)


def _draw_trails(frame, plane, row, y, x, goes_right) -> None:
    """Marks the cell behind each entity, if there is one."""
    behind = x - np.where(goes_right, 1, -1)
    there = (behind >= 0) & (behind < SIDE)
    frame[row[there], y[there], behind[there], plane] = 1


GAMES: dict[str, type[Game]] = {
    "Asterix": Asterix,
    "Breakout": Breakout,
    "Freeway": Freeway,
    "Seaquest": Seaquest,
    "SpaceInvaders": SpaceInvaders,
}
"""The games by name."""
