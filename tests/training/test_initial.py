"""Runs that start from the parameters of other runs."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rcrl_jax
from rcrl_jax import types
from rcrl_jax.agents import agent
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields, presets
from rcrl_jax.envs.protocol import control_spec, discrete_spec
from rcrl_jax.runs import checkpoints, manifest, parameters
from rcrl_jax.runs.paths import RunId
from rcrl_jax.tables import runs as tables
from rcrl_jax.training import initial
from rcrl_jax.training.initial import Source
from rcrl_jax.training.session import Session
from tests.programs import programs
from tests.programs.test_command_line import assert_refused
from tests.training import toy

IMAGE = control_spec((64, 64, 3), 2)
# Every family: the spec of its environment, changes, and what of its agent parameters has targets.
FAMILIES = {
    "rcrl_curl": (discrete_spec((84, 84), 3), {"hidden_size": 8}, lambda params: params),
    "rcrl_sac": (control_spec((100, 100, 3), 2), {"hidden_size": 8}, lambda params: params.critic),
    "dreamer": (IMAGE, {"head_size": 8}, lambda params: ()),
    "planet": (IMAGE, {}, lambda params: ()),
    "slac": (IMAGE, {"filters": 8}, lambda params: params.critics),
    "simple_small": (None, {}, lambda params: ()),
}


@pytest.mark.parametrize("preset", FAMILIES)
def test_targets_and_task_states_follow_the_parameters_that_an_agent_starts_from(preset):
    spec, changes, targets_of = FAMILIES[preset]
    config = fields.replace(presets.all_presets()[preset], changes)
    made = make_agent(config, spec or discrete_spec(config.frame_shape, 3))
    run = types.RunSpec(np.int32(2), made.run_constants("Pong"))
    init = jax.jit(made.init)
    drawn, others = (init(run, jax.random.key(seed)) for seed in (0, 1))
    given = parameters.by_name(others.params.agent)
    started = init(run, jax.random.key(0), given)
    toy.assert_equal_trees(started.params.agent, others.params.agent)
    toy.assert_equal_trees(started.target_params, targets_of(started.params.agent))
    toy.assert_equal_trees(started.params.auxiliary, drawn.params.auxiliary)
    if "curl" in started.task_state:  # its momentum networks begin as copies
        found, given_to, own = (x.task_state["curl"] for x in (started, others, drawn))
        toy.assert_equal_trees(found["encoder"], given_to["encoder"])
        toy.assert_equal_trees(found["projection"], own["projection"])

    encoder = {name: x for name, x in given.items() if agent.is_of_encoder(name)}
    if preset == "simple_small":
        assert not encoder  # the model is a network from pixels to pixels
        return
    assert 0 < len(encoder) < len(given)
    started = parameters.by_name(init(run, jax.random.key(0), encoder).params.agent)
    for name, x in parameters.by_name(drawn.params.agent).items():
        assert jnp.array_equal(started[name], encoder.get(name, x)), name


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two trained runs of `rcrl`, seeds 3 and 4."""
    plan = toy.make_plan(tmp_path_factory.mktemp("source"), seeds=(3, 4), total_steps=60)
    toy.run(plan)
    return plan


def agents_of(plan):
    """The newest agent parameters of a plan by their paths, leading axis R."""
    place = plan.paths[0].checkpoints
    newest = checkpoints.kept_steps(place)[-1]
    return checkpoints.read_agents(checkpoints.path_of(place, newest))


def plan_from(source, directory, part="all", seeds=(4,), **changes):
    changes = {"total_steps": 100, **changes}
    init_from = Source(source.workdir, part)
    return toy.make_plan(directory, seeds=seeds, init_from=init_from, **changes)


def read(plan):
    with Session(plan) as session:
        shapes = jax.eval_shape(session.fleet.init).params.agent
        return initial.read(plan.init_from, plan.config, plan.runs, shapes)


def test_each_run_starts_from_the_source_s_run_of_its_seed(source, tmp_path):
    theirs, ours = agents_of(source), read(plan_from(source, tmp_path, seeds=(4, 3)))
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name][::-1])
    encoder = read(plan_from(source, tmp_path, "encoder"))
    assert {*encoder} == {name for name in theirs if agent.is_of_encoder(name)}


def test_a_single_run_with_its_final_parameters_starts_all(source, tmp_path):
    alone = source.paths[1].directory
    plan = plan_from(source, tmp_path, seeds=(0, 1))
    found = read(dataclasses.replace(plan, init_from=Source(alone, "all")))
    theirs = agents_of(source)
    for name, array in found.items():  # rounded to half precision when they were written
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, theirs[name][[1, 1]], rtol=1e-3, atol=1e-7)


def test_an_interrupted_run_goes_on_and_a_finished_one_answers_without_the_source(source, tmp_path):
    moved = dataclasses.replace(source, workdir=tmp_path / "moved")
    shutil.copytree(source.workdir, moved.workdir)
    whole, stopped = (plan_from(moved, tmp_path / name) for name in ("whole", "stopped"))
    toy.run(whole)
    toy.run_and_stop(stopped, 30)
    shutil.rmtree(moved.workdir)
    toy.run(stopped)
    toy.assert_same_result(stopped, whole)
    assert any("nothing to do" in line for line in toy.run(whole))
    found = manifest.read(whole.paths[0].manifest)["run"]["init_from"]
    assert found == manifest.read(stopped.paths[0].manifest)["run"]["init_from"]
    assert found["source"] == str(moved.workdir) and found["part"] == "all"
    assert len(found["sha256"]) == 64
    other = dataclasses.replace(whole, init_from=Source(moved.workdir, "encoder"))
    with pytest.raises(manifest.WorkdirMismatch, match=r"init_from\.part all -> encoder"):
        toy.run(other)
    with pytest.raises(manifest.WorkdirMismatch, match="init_from"):
        toy.run(dataclasses.replace(whole, init_from=None))


def test_a_run_that_is_killed_before_its_first_save_goes_on_without_the_source(source, tmp_path):
    moved = dataclasses.replace(source, workdir=tmp_path / "moved")
    shutil.copytree(source.workdir, moved.workdir)
    whole, killed = (plan_from(moved, tmp_path / name) for name in ("whole", "killed"))
    toy.run(whole)

    seen = []

    def fail(moment):
        seen.append(moment)
        if len(seen) > 1:  # after some steps
            raise RuntimeError

    with pytest.raises(RuntimeError):
        toy.run(dataclasses.replace(killed, observe=fail, observe_period=10))
    shutil.rmtree(moved.workdir)
    toy.run(killed)
    toy.assert_same_result(killed, whole)


def test_a_run_without_a_source_has_no_entry_of_one(source):
    assert "init_from" not in manifest.read(source.paths[0].manifest)["run"]


REFUSED = {
    "missing": (lambda p, s: Source(p / "none", "all"), {}, "there is no directory"),
    "no run": (lambda p, s: Source(p, "all"), {}, "is no work directory"),
    "seed": (lambda p, s: Source(s, "all"), {"seeds": (5,)}, "has no run of Catch with seed 5"),
    "shape": (
        lambda p, s: Source(s, "all"),
        {"overrides": {"hidden_size": 8}},
        "advantage_hidden/bias_mu is [1, 16], and [1, 8] here",
    ),
    "names": (
        lambda p, s: Source(s, "all"),
        {"preset": "erainbow"},
        "action_embedding is [3, 576], and absent here",
    ),
    "encoder": (
        lambda p, s: Source(s, "encoder"),
        {"overrides": {"encoder": "nature"}},
        "params/encoder/conv1_kernel is",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_source_that_does_not_fit_is_refused_and_nothing_written(kind, source, tmp_path):
    make, changes, says = REFUSED[kind]
    (tmp_path / "empty").mkdir()
    plan = plan_from(source, tmp_path / "run", **changes)
    plan = dataclasses.replace(plan, init_from=make(tmp_path / "empty", source.workdir))
    with pytest.raises(types.Incompatible) as refusal:
        toy.run(plan)
    text = str(refusal.value)
    assert text.startswith("init_from: ") and says in text and "\n" not in text
    assert not plan.workdir.exists()


def test_another_family_is_refused(source):
    with pytest.raises(types.Incompatible, match="of the family rainbow, not sac"):
        sac = presets.all_presets()["rcrl_sac"]
        initial.find(Source(source.workdir, "all"), sac, [RunId("Catch", 3)])


def test_the_front_door_and_the_program_start_from_a_run(tmp_path, monkeypatch):
    small = {"learn_start": 20, "replay.capacity": 100, "evaluation_period": 1000}
    asked = {"game": "Breakout", "steps": 40, "eval_episodes": 1, "settings": small}
    monkeypatch.chdir(tmp_path)
    first = rcrl_jax.train("minatar_erainbow_sa", workdir="first", **asked)
    rcrl_jax.train("minatar_rcrl", workdir="r/e", init_from=first, init_part="encoder", **asked)
    rcrl_jax.train("minatar_rcrl", workdir="r/0", **asked)
    arm = "minatar_rcrl(learn_start=20, replay.capacity=100"
    assert {*tables.read("r").frame.arm} == {
        f"{arm})",
        f"{arm}, init_from.source=first, init_from.part=encoder)",
    }
    for part, directory, says in (
        ("encoder", None, "init_part: has no effect without init_from"),
        ("tail", first, "init_part: expected all or encoder, got 'tail'"),
    ):
        with pytest.raises(ValueError, match=says):
            rcrl_jax.train("minatar_rcrl", init_from=directory, init_part=part, **asked)
    made = sorted(tmp_path.iterdir())
    for dry_run in ("--dry_run", "--nodry_run"):
        refused = programs.call(
            "experiments.minatar", "--init_from=none", "--workdir=new", dry_run, directory=tmp_path
        )
        assert_refused(refused)
        assert "init_from: there is no directory none" in refused.stderr
    assert sorted(tmp_path.iterdir()) == made
    config = json.loads((tmp_path / "r/e/minatar_rcrl/Breakout/seed_0/manifest.json").read_text())
    assert config["run"]["init_from"].keys() == {"source", "part", "sha256"}
