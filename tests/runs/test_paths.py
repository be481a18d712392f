"""Where the files of a run lie."""

import pathlib

from rcrl_jax.runs.paths import RunPaths


def test_paths_of_a_run():
    paths = RunPaths("/w", "rcrl", "Pong", 3)
    run = pathlib.Path("/w/rcrl/Pong/seed_3")
    assert paths.directory == run
    assert paths.manifest == run / "manifest.json"
    assert paths.metrics == run / "metrics.jsonl"
    assert paths.evaluations == run / "evaluations.jsonl"
    assert paths.scores == run / "scores.json"
    assert paths.parameters == run / "parameters.npz"
    assert paths.curve == run / "curve.png"
    assert paths.video == run / "evaluation.mp4"
    assert paths.tensorboard == run / "tensorboard"
    assert paths.checkpoints == pathlib.Path("/w/checkpoints")
