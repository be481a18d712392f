"""Losses as pure functions of one run.

What the functions take is stated in each docstring:

    [...]    one item or any batch of items, with one result per item: the policy and the
             element-wise losses of `sac`, action values in `c51`
    [B]      a batch of transitions, with one loss per transition: the losses that call rlax, which
             takes one transition (`c51.double_q_cross_entropy`, `sac.critic_loss`)
    [T, ...] consecutive steps, time first: `ppo`, `world_model`
"""
