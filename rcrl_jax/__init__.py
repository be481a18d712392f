"""Return-based contrastive representation learning (RCRL) for reinforcement learning in JAX.

    import rcrl_jax
    run = rcrl_jax.train("minatar_rcrl", game="Breakout", seeds=range(4), workdir="runs/first")
    run = rcrl_jax.load("runs/first")
    rcrl_jax.scores("runs")

`api.py` and `trained.py` describe them. Importing this package imports no JAX.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rcrl_jax.api import load, score_matrices, scores, train
    from rcrl_jax.trained import Player, Run

__all__ = ["Player", "Run", "load", "score_matrices", "scores", "train"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The public names, imported at their first use, because that imports JAX."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rcrl_jax import api, trained

    return getattr(trained if name in ("Player", "Run") else api, name)
