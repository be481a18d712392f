"""The command writes the page and says what is left out."""

from tests.programs import programs
from tests.programs.test_command_line import assert_refused
from tests.tables import synthetic


def command(*arguments) -> programs.Ended:
    return programs.call("benchmarks.report", *arguments)


def test_the_page_is_written_and_what_is_left_out_is_named(tmp_path):
    root = tmp_path / "results"
    for seed in range(2):
        run = synthetic.write_run(root, "sac_aug", "walker_walk", seed, 5.0, steps=25_000)
    (run / "scores.json").write_text("{")
    output = tmp_path / "new" / "report.html"
    result = command(f"--results={root}", f"--output={output}")
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert "seed_1/scores.json is damaged" in line
    assert result.stdout == f"{output}: runs: 1, left out: 1\n"
    text = output.read_text(encoding="utf-8")
    assert 'href="../results/sac_aug/walker_walk/seed_0/"' in text
    assert "Claims without pairs of runs: 9" in text


def test_a_missing_directory_is_refused_and_an_old_page_stays(tmp_path):
    output = tmp_path / "report.html"
    output.write_text("old")
    result = command("--results=/nowhere", f"--output={output}")
    assert_refused(result)
    assert "/nowhere" in result.stderr
    assert output.read_text() == "old"
    result = command(f"--results={tmp_path}", f"--output={tmp_path}")
    assert_refused(result)
    assert "is a directory" in result.stderr
