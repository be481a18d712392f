"""A user's mistake is one clear line and exit code 2; `--help` explains every flag."""

import pathlib

import pytest

from rcrl_jax.config import fields, presets
from rcrl_jax.programs import command_line
from tests.programs import programs

ROOT = pathlib.Path(__file__).parents[2]


def test_help_lists_every_flag_and_every_field():
    result = programs.call("experiments.atari100k", "--help", "--preset=erainbow")
    assert result.returncode == 0
    text = " ".join(result.stdout.split())
    for flag in (
        "--game", "--seed", "--preset", "--steps", "--workdir", "--eval_episodes", "--backend",
        "--[no]video",
    ):  # fmt: skip
        assert f" {flag}: " in text, flag
    program, fields_of_preset = text.split(" hyperparameters of the preset: ")
    assert "--workdir" in program and "--config" not in program.partition(" flags: ")[2]
    assert fields_of_preset.startswith("--config.")
    chosen = presets.ATARI_PRESETS["erainbow"]
    unused = fields.without_effect(chosen)

    def effect(name):
        return f"; without effect unless {unused[name]}" if name in unused else ""

    for field in fields.named_fields(chosen):
        meaning, source = field.metadata["meaning"], field.metadata["source"]
        value = repr(str(field.value).lower() if field.type is bool else str(field.value))
        explained = f"config.{field.name}: {meaning} (source: {source}){effect(field.name)}"
        assert f"{explained} (default: {value})" in text, field.name
    assert effect("epsilon") == "; without effect unless exploration is 'epsilon_greedy'"
    for source, meaning in fields.SOURCES.items():
        assert f"source {source}: {meaning}" in text


def test_a_process_ends_as_the_program_does_inside_a_test(tmp_path):
    """All trials of bad flags run inside the test's process."""
    process = programs.run("experiments.atari100k", "--steps=1000", directory=tmp_path)
    inside = programs.call("experiments.atari100k", "--steps=1000", directory=tmp_path)
    assert_refused(process)
    assert inside == process


def test_seeds_are_a_list_or_a_range_without_its_end():
    assert command_line.parse_seeds("4") == (4,)
    assert command_line.parse_seeds("2,0, 1") == (2, 0, 1)
    assert command_line.parse_seeds("3:6") == (3, 4, 5)
    assert command_line.parse_seeds("2147483646:2147483648") == (2**31 - 2, 2**31 - 1)
    assert len(command_line.parse_seeds("5:1005")) == 1000


@pytest.mark.parametrize(
    "text",
    ["", "1,", "a", "-1", "1,1", "3:3", "5:3", "0:1001", "0:9999999999", "0:99999999999",
     "2147483648", "2147483647:2147483649", "0:2:4", ",".join(map(str, range(1001)))],
)  # fmt: skip
def test_texts_that_name_no_different_seeds_or_too_many_are_refused(text):
    with pytest.raises(ValueError, match="^--seeds: expected different seeds like 0,1,2"):
        command_line.parse_seeds(text)


def assert_refused(result: programs.Ended) -> None:
    """Exit code 2, one line that begins with `error:` and nothing else."""
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    assert result.stdout == ""


def assert_mistake(result: programs.Ended, says, directory: pathlib.Path) -> None:
    """Refused with every word of `says`, and nothing written to `directory`."""
    assert_refused(result)
    for word in says:
        assert word in result.stderr
    assert not list(directory.iterdir())
