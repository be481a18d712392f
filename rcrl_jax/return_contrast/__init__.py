"""The paper's idea: learn by contrast which state-action pairs have the same return (RCRL, 2021).

section 4.3, appendix C    segments.py       parts of an episode whose pairs share a return
introduction, 4.1          returns.py        returns of stored pairs, for rules that compare them
section 4.3, appendix C    sampling.py       draws anchors, positives and negatives, by a
                                             `ContrastRule` (`replay/settings.py`)
section 4.3                discriminator.py  w(phi(x1), phi(x2))
equation 1, figure 1       task.py           the loss, and what the task asks of an agent
section 5.2                episodes.py       evaluation games, and pairs from them
                           instruments.py    what an agent tells apart on those pairs
"""
