"""Native code for the CPU, and what calls it: optional, see `rcrl_jax/ops/native.py`."""
