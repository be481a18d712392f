"""Configurations: one frozen dataclass per agent family, one named instance per row of the paper.

    fields.py    how a field is defined, checked, listed and replaced
    groups.py    fields that belong together: return contrast, CURL, replay
    rainbow.py   data-efficient C51 Rainbow
    sac.py       soft actor-critic
    presets.py   the rows of the paper's tables

Every field carries its meaning, its unit and its source, because `--help` prints them. Sources:

    K    github.com/Kaixhin/Rainbow, the codebase RCRL builds on, with its data-efficient flags
    RCRL Liu et al., "Return-Based Contrastive Representation Learning for RL", ICLR 2021
    C    github.com/aravindsrinivas/curl_rainbow, the code behind CURL's Atari scores
    CURL Srinivas et al., "CURL", ICML 2020, tables of the appendix; where they are silent,
         github.com/MishaLaskin/curl, the codebase that RCRL uses for DMControl
    AE   Yarats et al., "Improving Sample Efficiency in Model-Free RL from Images" (SAC+AE)
    H    Hessel et al., "Rainbow: Combining Improvements in Deep RL", AAAI 2018
    D    github.com/google/dopamine, labs/atari_100k: DER.gin and DrQ_eps.gin
    ours stated nowhere; docs/decisions.md gives the reason
"""
