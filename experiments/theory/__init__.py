"""The theory of RCRL (section 4, appendices A and B), computed on finite MDPs.

Sizes, as axes of arrays: S states, A actions, X = S A state-action pairs (s, a) with the index
s * A + a, M reward values, G possible returns, K bins of returns, N blocks (labels of an encoder),
D datasets of n samples each.
"""
