"""The presets of the study: those of Atari, and its control."""

from rcrl_jax.config import fields, presets

CONTROL = "rcrl_permuted"
"""Preset of the control, whose samples are labelled by permuted returns; see `permuted`."""

PRESETS = presets.ATARI_PRESETS | {
    CONTROL: fields.replace(
        presets.ATARI_PRESETS["rcrl"],
        {
            "return_contrast.positives": "equal_return",
            "return_contrast.negative_differs_in_return": True,
        },
    )
}
"""The presets that `experiments.returns.train` knows."""
