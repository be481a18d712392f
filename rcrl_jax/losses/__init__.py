"""Losses that several agent families share, as pure functions of one run.

What the functions take is stated in each docstring:

    [...]    one item or any batch of items: the policies and the element-wise losses of `sac` and
             `world_model`, action values in `c51`, with one result per item; `ppo.loss` and the
             cross-entropy of `simple`, which are means over all items
    [B]      a batch of transitions, with one loss per transition: `c51.double_q_cross_entropy`,
             `sac.critic_loss`
    [T, ...] consecutive steps, time first: advantages in `ppo`, returns in `world_model`
"""
