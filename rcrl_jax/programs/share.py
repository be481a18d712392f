r"""Packs a finished run for others, with a model card, into a folder that Hugging Face takes.

    python -m experiments.share --run=runs/rcrl-Pong-0/rcrl/Pong/seed_0 --output=runs/rcrl-pong
    hf upload NAME/rcrl-pong runs/rcrl-pong

The folder gets parameters.npz, manifest.json, scores.json, the film of training's --video as
replay.mp4 if there is one, and README.md. `rcrl_jax.load` and experiments.evaluate read it.
"""

import json
import pathlib
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from typing import Any

from absl import flags

from rcrl_jax.programs import command_line
from rcrl_jax.runs import records, workdir
from rcrl_jax.runs.paths import PARAMETERS, RunPaths
from rcrl_jax.runs.workdir import Trained

_RUN = flags.DEFINE_string("run", None, "folder of a finished run, <preset>/<game>/seed_<n>")
_OUTPUT = flags.DEFINE_string("output", None, "the folder that is made")

_CARD = """---
library_name: rcrl-jax
pipeline_tag: reinforcement-learning
tags: [reinforcement-learning, deep-reinforcement-learning, rcrl-jax, {game}]
model-index:
- name: {preset}
  results:
  - task: {{type: reinforcement-learning, name: reinforcement-learning}}
    dataset: {{type: {game}, name: {game}}}
    metrics:
    - {{type: mean_reward, name: mean_reward, value: {value}, verified: false}}
---
# `{plain_preset}` on {plain_game}

An agent of `rcrl_jax` after {steps:,} agent steps with seed {seed}. Mean return of {episodes}
games of the final evaluation: **{mean:.1f}** (standard deviation over the games {std:.1f}). One
run says little about a preset: scores differ between seeds.

```python
import rcrl_jax

player = rcrl_jax.load("FOLDER").player()  # FOLDER: where these files lie
```

`rcrl-evaluate --workdir=FOLDER --episodes=1 --video` plays a game. `manifest.json` holds every
hyperparameter, the versions and the evaluation protocol; `scores.json` the return of each game;
`parameters.npz` the final parameters in half precision, as arrays without pickles.
"""


def main(given: flags.FlagValues) -> None:
    """Packs the run that the flags name."""
    del given
    for flag in (_RUN, _OUTPUT):
        if flag.value is None:
            raise ValueError(f"--{flag.name} is missing; --help shows an example")
    pack(pathlib.Path(_RUN.value), pathlib.Path(_OUTPUT.value))
    print(f"packed in {_OUTPUT.value}")


def pack(run: pathlib.Path, output: pathlib.Path) -> None:
    """Makes the folder `output` of a finished run.

    Raises:
      ValueError: `run` is no finished run, or its files do not belong together.
      FileExistsError: `output` is there already.
      OSError: a file cannot be read or written.
    """
    if not (run / PARAMETERS).is_file():
        raise ValueError(f"--run: {run} has no {PARAMETERS}: name the folder of a finished run")
    result = records.read_result(run) if records.has_result(run) else None
    if result is None:
        raise ValueError(f"--run: {run} has no scores: name the folder of a finished run")
    trained = workdir.read(run)
    paths = RunPaths(run, trained.preset, *trained.runs[0])
    if output.exists():
        raise FileExistsError(f"--output: {output} is there already")
    card = describe(trained, result)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial.", dir=output.parent) as partial:
        whole = pathlib.Path(partial, output.name)
        whole.mkdir()
        for path in (paths.parameters, paths.manifest, paths.scores):
            shutil.copyfile(run / path.name, whole / path.name)
        if (film := run / paths.video.name).exists():
            shutil.copyfile(film, whole / "replay.mp4")
        (whole / "README.md").write_text(card)
        whole.rename(output)


def describe(trained: Trained, scores: Mapping[str, Any]) -> str:
    """The model card of a run with these scores: Markdown after YAML, whose values are JSON."""
    mean, std = scores["mean"], statistics.pstdev(scores["returns"])
    preset, (game, seed) = trained.preset, trained.runs[0]
    return _CARD.format(
        preset=json.dumps(preset), game=json.dumps(game), plain_preset=preset, plain_game=game,
        value=json.dumps(f"{mean:.2f} +/- {std:.2f}"), mean=mean, std=std, seed=seed,
        steps=trained.total_steps, episodes=len(scores["returns"]),
    )  # fmt: skip


if __name__ == "__main__":
    command_line.run(main)
