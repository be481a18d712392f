"""Operations with one implementation per device: convolutions, products, optimizers, precision.

A kernel runs if it was compiled and the processor supports it (`native.py`). Otherwise the
alternative after "else" computes the same.

| module | for | on the CPU | on accelerators |
| --- | --- | --- | --- |
| `convolution` | SAC, Nature, IMPALA | `kernels/convolution.cc`, else products | not called |
| `device_convolutions` | SAC, 3 x 3 | not called | XLA's convolutions |
| `strided_convolution` | strides 2 to 4 | products | XLA's convolutions |
| `products` | Rainbow on small inputs | XLA's, with an explicit transpose | XLA's |
| `precision` | all products | JAX's setting | the same; on CUDA another name of TF32 |
| `adam` | all agents | `kernels/adam.cc`, else optax | optax |
| `adafactor` | SimPLe's models | XLA | XLA |
| `native.wrap_key` | random numbers | `kernels/threefry.py`, else `jax.random` | the same |

`kernels/encoder.cc` is Rainbow's data-efficient encoder on the CPU
(`agents/rainbow/encoders/data_efficient.py`). `kernels/sum_tree.c` and `kernels/stacks.c` serve the
replay, which is NumPy on every machine.
"""
