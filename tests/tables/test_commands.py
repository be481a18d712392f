"""The table commands: what they print, write, leave out and refuse."""

import csv
import os

import pytest

from rcrl_jax.tables import command, runs, scores
from tests.programs import programs
from tests.programs.test_command_line import assert_refused
from tests.tables.synthetic import score_at, write_run

STEPS = 500
SUFFIXES = ("csv", "html", "md", "tex")


def compare(root, first, second, games=("Alien", "Amidar", "Assault"), seeds=range(4)):
    """Finishes runs of `rcrl` and `curl` at these human-normalised levels."""
    for preset, level in (("rcrl", first), ("curl", second)):
        for game in games:
            for seed in seeds:
                score = score_at(game, level + seed / 100)
                write_run(root, preset, game, seed, score, steps=STEPS)


def read_csv(path):
    with open(path, newline="") as file:
        return {row[0]: row[1:] for row in csv.reader(file)}


def files(directory):
    return {path.name for path in directory.iterdir()}


def test_an_empty_directory_gives_the_published_table(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    command.run("table1", [tmp_path / "results"], tmp_path / "out")
    printed = capsys.readouterr()
    assert "16.86 %" in printed.out
    assert printed.err == f"no finished run below {tmp_path}/results\n"
    assert files(tmp_path / "out") == {
        f"{stem}.{suffix}" for stem in ("table1", "table1_verdicts") for suffix in SUFFIXES
    }
    rows = read_csv(tmp_path / "out" / "table1.csv")
    column = rows["game"].index("ERainbow-sa published")
    assert float(rows["median HNS"][column]) == pytest.approx(0.1686, abs=5e-5)
    assert printed.out.splitlines()[-1] == f"written to {tmp_path}/out"


def test_an_agent_of_the_readers_stands_beside_the_others(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    mine = tmp_path / "mine.csv"
    mine.write_text("game,seed,score\nAlien,0,100\nAlien,1,300\nPong,0,-3.5\n")
    command.run("table1", [tmp_path / "results"], tmp_path / "out", others=[mine])
    rows = read_csv(tmp_path / "out" / "table1.csv")
    column = rows["game"].index("mine yours")
    assert float(rows["Alien"][column]) == 200 and float(rows["Pong"][column]) == -3.5
    assert "mine: 2 of 26 games, so no aggregate. Mean HNS over these games: yours" in (
        capsys.readouterr().out.replace("\n", " ")
    )


@pytest.mark.parametrize(
    "text, says",
    [
        ("game,score\nAlien,1\n", "no column seed"),
        ("game,seed,score\nAlice,0,1\n", "'Alice'"),
        ("game,seed,score\nAlien,0,nan\n", "finite"),
        ("game,seed,score\nAlien,0,1\nAlien,0,2\n", "each game and seed"),
        ("game,seed,score\nAlien,,1\n", "each game and seed"),
        ("game,seed,score\nAlien,0,one\n", "mine.csv"),
        ("game,seed,score\n", "expected"),
        ("", "mine.csv"),
    ],
)
def test_wrong_scores_of_the_readers_are_one_line(tmp_path, text, says):
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(ValueError, match=says) as caught:
        scores.read_others([tmp_path / "mine.csv"])
    assert "\n" not in str(caught.value)


def test_scores_of_the_readers_are_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "mine.csv")
    with pytest.raises(ValueError, match="mine.csv is damaged: it is not a regular file"):
        scores.read_others([tmp_path / "mine.csv"])
    with pytest.raises(OSError):  # no request is made
        scores.read_others(["https://localhost/mine.csv"])


def test_what_is_left_out_is_named_once_with_its_flag_and_the_rest_shown(tmp_path, capsys):
    results = tmp_path / "results"
    compare(results, 0.5, 0.2)
    write_run(results, "rcrl", "Pong", 0, 3.0, steps=STEPS, algorithm=1)
    write_run(results, "der_plus", "Pong", 0, 3.0, steps=STEPS)
    write_run(results, "rcrl", "Hero", 0, 3.0, steps=2 * STEPS)
    broken = write_run(results, "rcrl", "Boxing", 0, 3.0, steps=STEPS)
    (broken / "scores.json").write_text("{")
    write_run(results, "rcrl", "Boxing", 1, None, steps=STEPS)
    command.run("table1", [results], tmp_path / "out", presets=["rcrl", "curl"])
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 5
    for expected in (
        "seed_0/scores.json is damaged",
        "is not finished",
        "not shown here, runs of der_plus (1)",
        "1 run left out: algorithm is 1",
        "runs of other budgets left out, 1 of 1,000 steps; for example --steps=1000 shows them",
    ):
        assert sum(expected in line for line in errors) == 1, errors
    rows = read_csv(tmp_path / "out" / "table1.csv")
    column = rows["game"].index("rcrl ours")
    assert rows["Alien"][column + 1] == "4" and rows["Pong"][column] == ""
    command.run("table1", [results], tmp_path / "out", budgets=[STEPS])
    assert "der_plus ours" in read_csv(tmp_path / "out" / "table1.csv")["game"]


def test_a_short_run_with_changed_fields_is_shown_under_its_preset(tmp_path, capsys):
    """Without a run of a published budget, the table is of the budget that there is."""
    results = tmp_path / "results"
    write_run(results, "rcrl", "Pong", 0, 3.0, steps=4000, changes={"n_step": 5})
    command.run("table1", [results], tmp_path / "out", presets=["rcrl"])
    printed = capsys.readouterr()
    assert "published scores after 100,000 environment steps, ours after 4,000" in printed.out
    assert not printed.err
    arguments = [f"--results={results}", f"--output={tmp_path}/out", "--steps=4e3"]
    again = programs.call("benchmarks.table1", *arguments).stdout
    assert "ours after 4,000" in again
    rows = read_csv(tmp_path / "out" / "table1.csv")
    assert float(rows["Pong"][rows["game"].index("rcrl(n_step=5) ours")]) == 3.0
    command.run("table1", [results], tmp_path / "out", presets=["rcrl"], budgets=[100_000])
    printed = capsys.readouterr()
    assert "No run of" not in printed.out
    heads = read_csv(tmp_path / "out" / "table1.csv")["game"]
    assert not [name for name in heads if name.endswith(" ours")]
    assert printed.err.splitlines() == [
        "runs of other budgets left out, 1 of 4,000 steps; for example --steps=4000 shows them",
        "no finished run of rcrl has these steps",
    ]
    write_run(results, "rcrl", "Alien", 0, 3.0, steps=4000, changes={"n_step": 5})
    command.run("table2", [results], tmp_path / "out")
    shows = "runs of other budgets left out, 1 of 4,000 steps; for example --steps=4000,1500000"
    assert f"{shows} shows them" in capsys.readouterr().err.splitlines()


def test_chosen_presets_decide_which_claims_are_judged(tmp_path):
    compare(tmp_path / "results", 0.5, 0.2)
    write_run(tmp_path / "results", "erainbow", "Alien", steps=STEPS)
    command.run("table1", [tmp_path / "results"], tmp_path / "out", presets=["rcrl", "curl"])
    judged = read_csv(tmp_path / "out" / "table1_verdicts.csv")
    assert [*judged] == ["claim", "rcrl > curl, 500: undecided"]
    head = read_csv(tmp_path / "out" / "table1.csv")["game"]
    assert [name for name in head if name.endswith(" ours")] == ["curl ours", "rcrl ours"]


def test_table_2_and_the_figure_of_dmcontrol(tmp_path, capsys):
    results = tmp_path / "results"
    for steps in (300, 600):
        write_run(results / str(steps), "rcrl", "Alien", 0, 3.0, steps=steps)
    write_run(results, "rcrl_sac", "cartpole_swingup", 0, 600.0, steps=62_500)
    command.run("table2", [results], tmp_path / "out", budgets=(300, 600))
    command.run("figure_dmc", [results], tmp_path / "out")
    printed = capsys.readouterr()
    assert not printed.err and "600 (1)" in printed.out
    out = tmp_path / "out"
    _, *judged = read_csv(out / "figure_dmc_verdicts.csv")
    assert [name.partition(",")[0] for name in judged] == [
        "rcrl_sac > sac_aug", "rcrl_sac > curl_sac"
    ]  # fmt: skip
    assert {f"{stem}.{end}" for stem in ("table2", "figure_dmc") for end in SUFFIXES} < files(out)
    assert (out / "figure_dmc.png").read_bytes().startswith(b"\x89PNG")
    assert "not scores at a step" in (out / "figure_dmc.md").read_text()  # Dreamer's curve
    heads = read_csv(out / "figure_dmc.csv")["task, steps"]
    assert [name for name in heads if name.endswith(" ours")] == ["rcrl_sac ours"]


@pytest.mark.parametrize("module", ["table1", "report"])
def test_an_output_that_cannot_be_written_is_refused_before_runs_are_read(module, monkeypatch):
    def read(*roots, **options):
        raise AssertionError("runs are read")

    monkeypatch.setattr(runs, "read", read)
    result = programs.call(f"benchmarks.{module}", "--output=/dev/null/x/y.html")
    assert_refused(result)
    assert "/dev/null/x" in result.stderr


def test_games_outside_table_2_choose_no_runs_of_it(tmp_path):
    for game in ("Alien", "Amidar"):
        write_run(tmp_path, "rcrl", game, steps=100_000)
    for seed in range(5):
        write_run(tmp_path, "rcrl", "Pong", seed, steps=100_000, episodes=20)
    shown = command.fill(command.PAPER["table2"], runs.read(tmp_path).frame)
    assert [*shown.runs.game] == ["Alien", "Amidar"]
