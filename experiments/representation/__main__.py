r"""Trains presets on a game and measures what their representations learn (RCRL, section 5.2).

    python -m experiments.representation --game=Alien --seeds=0:5

Trains each preset as `experiments.atari100k` does, in `<workdir>/<preset>`, and keeps snapshots
of the representation. Then plays evaluation episodes with the final agents and draws pairs from
them, the same for every preset, seed and snapshot. In `<workdir>/<game>`:

    similarity.jsonl   cosine similarity of anchor and positive, and of anchor and negative, on
                       these held-out pairs and on pairs of the replay; one object per snapshot,
                       run and kind of pairs
    similarity.png     the similarities drawn as in the paper, with the scores of the runs
    probe.jsonl        how much of the discounted return a linear function of phi explains; for
                       comparison, a linear function of the step number, and a constant
    probe.png          the same, drawn

If a head reads only states, phi means psi(s). The same command in the same work directory resumes.
--config changes a field of every preset.
"""

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from absl import app, flags

from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import atari
from rcrl_jax.programs import atari100k, command_line, launch
from rcrl_jax.programs.atari100k import PROGRAM
from rcrl_jax.training import host_memory

if TYPE_CHECKING:
    from rcrl_jax.training.plan import Plan

flags.adopt_module_key_flags(atari100k)

_PRESETS = flags.DEFINE_list(
    "presets", ["erainbow_sa", "rcrl"], f"presets to compare: {', '.join(presets.ATARI_PRESETS)}"
)
_SNAPSHOT_PERIOD = flags.DEFINE_integer(
    "snapshot_period", 2500, "agent steps between measurements; the last step has one, too",
    lower_bound=1, upper_bound=fields.LARGEST_INT,
)  # fmt: skip
_PAIRS = flags.DEFINE_integer(
    "pairs", 512, "anchors of a measurement", lower_bound=1, upper_bound=10_000
)
_PROBE_STEPS = flags.DEFINE_integer(
    "probe_steps", 4000, "steps of evaluation episodes for the linear probe; half are for fitting",
    lower_bound=100, upper_bound=1_000_000,  # of fewer, one half may have no episode
)  # fmt: skip

_BASE = "erainbow_sa"  # the preset whose fields --config shows
# How pairs of the replay are drawn, also those that measure a preset without the task.
_RULE = tuple(
    f"return_contrast.{name}"
    for name in ("anchors", "positives", "positive_excludes_anchor", "negative_differs_in_return")
)


def main(argv: list[str]) -> None:
    """Trains, then analyses."""
    del argv
    try:
        if flags.FLAGS.games is not None or flags.FLAGS.video or flags.FLAGS["from"].present:
            raise ValueError("one --game at a time, no --video and no --from")
        (game,) = launch.read_games(PROGRAM)
        workdir = pathlib.Path(launch.WORKDIR.value or f"runs/representation-{game}")
        settings = _read_settings()
        large_blocks = any(config.needs_large_blocks for config in settings.values())
        host_memory.keep_freed_memory(large_blocks=large_blocks)
        # Imported late: the line above must come before JAX starts its threads.
        from experiments.representation import analysis
        from rcrl_jax import api

        plans = [
            _make_plan(preset, config, game, workdir / preset)
            for preset, config in settings.items()
        ]
    except ValueError as error:
        command_line.refuse(str(error))
    with launch.ending_cleanly():
        for plan in plans:  # all of them before the first one trains
            if not plan.has_scores():
                api.check(plan, atari.largest_spec())
        launch.end_dry_run(plans, workdir)
        for plan in plans:
            launch.run(plan, atari.largest_spec())
        analysis.analyse(
            plans, workdir / game, num_pairs=_PAIRS.value, probe_steps=_PROBE_STEPS.value
        )
    print(f"representation in {workdir / game}")


def _read_settings() -> dict[str, RainbowConfig]:
    """The configurations of the presets that the flags name."""
    if len(set(_PRESETS.value)) < len(_PRESETS.value):
        raise ValueError(f"--presets: a preset is named twice in {','.join(_PRESETS.value)}")
    for preset in _PRESETS.value:
        if preset not in presets.ATARI_PRESETS:
            raise ValueError(f"--presets: {preset!r} is none of {', '.join(presets.ATARI_PRESETS)}")
    changed = command_line.changed_fields()
    # Measured anchors are drawn alike with 'rl_batch' and 'as_transitions'.
    rule = {name: x for name, x in changed.items() if name in _RULE and x != "rl_batch"}
    found = {
        name: fields.replace(fields.replace_used(presets.ATARI_PRESETS[name], changed), rule)
        for name in _PRESETS.value
    }
    unused = [fields.without_effect(config) for config in found.values()]
    for field in changed:
        if field not in rule and all(field in own for own in unused):
            raise ValueError(f"--config.{field}: has no effect in any of these presets")
    return found


def _make_plan(preset: str, config: RainbowConfig, game: str, workdir: pathlib.Path) -> "Plan":
    from experiments.representation import similarity

    plan = launch.make_plan(PROGRAM, preset, config, (game,), launch.read_seeds(), workdir)
    return dataclasses.replace(
        plan,
        observe=similarity.Observer(plan, _PAIRS.value),
        observe_period=_SNAPSHOT_PERIOD.value,
    )


if __name__ == "__main__":
    flags.FLAGS["workdir"].help = "directory of all files [default: runs/representation-<game>]"
    for name in ("games", "video", "from"):
        flags.FLAGS[name].help = "not here: one --game at a time, without a film or a manifest"
    command_line.define_fields(presets.ATARI_PRESETS[_BASE])
    app.run(main, flags_parser=command_line.parse)
