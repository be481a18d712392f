"""The presets and the arms of the study; `campaigns/returns.toml` lists its runs."""

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

PLAYER = "erainbow_sa"
"""The preset whose runs play the second half of the fixed episodes."""
TODAY, CONTROL_ARM = "segment", "permuted"
"""Names in the list of the arm with today's reading, and of the control."""
CANDIDATES = ("equal_return", "another_episode", "concatenation")
"""Names in the list of the arms that may become the preset `rcrl_returns`."""
