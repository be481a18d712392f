"""Weights & Biases: each row once and the configuration once, whatever interrupts; no network."""

import collections
import importlib.util
import json
import math

import pytest

import rcrl_jax
from rcrl_jax.programs.sweeps import driver
from rcrl_jax.runs import records, tracking
from tests.programs import programs
from tests.training import toy

if importlib.util.find_spec("wandb") is None:
    pytest.skip("wandb is not installed", allow_module_level=True)

import wandb
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal import datastore


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where W&B writes without a network."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    yield tmp_path / "wandb"
    wandb.teardown()  # which forgets these variables


def sent(folder):
    """By id: rows `[(step, row)]`, configurations with a learning rate, number of parts."""
    wandb.teardown()  # its process writes the ends of the files as it ends
    rows, configs, parts = (collections.defaultdict(list) for _ in range(3))
    for path in sorted(folder.glob("offline-run-*/*.wandb")):
        reader = datastore.DataStore()
        reader.open_for_scan(str(path))
        while (content := reader.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name = record.run.run_id
                parts[name].append(path)
                config = {own.key: own.value_json for own in record.run.config.update}
                if "learning_rate" in config:
                    configs[name].append(config)
            if kind == "history":
                row = {
                    "/".join(own.nested_key) or own.key: json.loads(own.value_json)
                    for own in record.history.item
                }
                rows[name].append((row["_step"], row))
    return rows, configs, parts


def ids(plan):
    return [json.loads((own.directory / "wandb.json").read_text())["id"] for own in plan.paths]


def assert_all_is_sent_once(plan, folder, parts):
    rows, configs, found = sent(folder)
    assert len(set(ids(plan))) == len(plan.runs) == len(found)
    for paths, name in zip(plan.paths, ids(plan), strict=True):
        assert len(found[name]) == parts
        (config,) = configs[name]
        assert json.loads(config["game"]) == "Catch" and json.loads(config["seed"]) == paths.seed
        assert json.loads(config["learning_rate"]) == 1e-3
        metrics = records.read_metrics(paths.metrics)
        evaluations = records.read_evaluations(paths.evaluations)
        steps = [step for step, _ in rows[name]]
        assert steps == sorted({line["agent_steps"] for line in [*metrics, *evaluations]})
        own = dict(rows[name])
        for group, line in [("training", x) for x in metrics] + [
            ("evaluation", x) for x in evaluations
        ]:
            for name, value in line.items():
                if isinstance(value, float) and name not in records.WALL_CLOCK_KEYS:
                    assert own[line["agent_steps"]][f"{group}/{name}"] == value, name


def test_a_run_that_is_interrupted_twice_sends_each_row_once(tmp_path, folder):
    """The second time in the final evaluation, after rows of the last step."""
    plan = toy.make_plan(tmp_path / "run", seeds=(3, 4), track=True)
    toy.run_and_stop(plan, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy.experiment.Assessor, "assess_finally", lambda assessor: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            toy.run(plan)
    lines = toy.run(plan)
    assert any(line.startswith("W&B: offline in ") and "2 runs" in line for line in lines)
    assert_all_is_sent_once(plan, folder, parts=3)
    assert not any("W&B" in line for line in toy.run(plan))  # all is sent


def test_a_finished_run_is_sent_by_the_same_command(tmp_path, folder, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setenv("WANDB_MODE", "disabled")
        plan = toy.make_plan(tmp_path / "run", track=True)
        assert any("nothing is sent" in line for line in toy.run(plan))
    assert not folder.exists()
    plan = toy.make_plan(tmp_path / "run", track=True)
    assert "finished already" in toy.run(plan)[0]
    assert_all_is_sent_once(plan, folder, parts=1)


def test_each_record_is_read_once(tmp_path, folder, monkeypatch):
    plan = toy.make_plan(tmp_path / "run")
    toy.run(plan)
    lines, read = [], records.read_lines

    def spy(path, *how):
        for line in read(path, *how):
            lines.append((path, line[0]))
            yield line

    monkeypatch.setattr(records, "read_lines", spy)
    with tracking.tracked(plan.paths, lambda line: None) as publish:
        for before in (100, 150, math.inf):
            publish(before)
    (paths,) = plan.paths
    files = paths.metrics, paths.evaluations
    assert lines == [(path, line) for path in files for line in path.read_bytes().splitlines()]
    assert_all_is_sent_once(plan, folder, parts=1)


def test_a_program_without_wandb_is_refused_before_it_writes(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name == "wandb" else find(name, *of)
    )
    for program, *flags in (
        ("experiments.minatar", f"--workdir={tmp_path / 'run'}"),
        ("experiments.sweep", "--presets=rcrl", "--games=Pong", f"--results={tmp_path / 'all'}"),
    ):
        ended = programs.call(program, "--track", *flags, directory=tmp_path)
        assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
        assert "pip install 'rcrl-jax[wandb]'" in ended.stderr and not list(tmp_path.iterdir())
    with pytest.raises(tracking.NotTracked, match="tracking needs W&B"):
        rcrl_jax.train("minatar_rcrl", game="Breakout", workdir=tmp_path / "run", track=True)
    assert not list(tmp_path.iterdir())


def test_a_sweep_hands_tracking_on_to_its_fleets(tmp_path, monkeypatch):
    made = []

    class Sweep:
        def __init__(self, spec, planned, directory, **how):
            made.append(how["make_command"](planned[0], directory))

        def run(self):
            return driver.Summary(1, 0, 0, None)

    monkeypatch.setattr(driver, "Sweep", Sweep)
    flags = ("--presets=rcrl", "--games=Pong", "--seeds=0", f"--results={tmp_path / 'all'}")
    for more in ([], ["--track"]):
        ended = programs.call("experiments.sweep", *flags, *more, directory=tmp_path)
        assert ended.returncode == 0, ended.stderr
    assert made[1] == [*made[0], "--track"]
