"""Configurations: one frozen dataclass per agent family, one named instance per preset.

    fields.py    how a field is defined, checked, listed and replaced
    choices.py   encoders of Rainbow, by name
    groups.py    fields that belong together: return contrast, CURL, replay
    rainbow.py   data-efficient C51 Rainbow
    sac.py       soft actor-critic
    world_models.py  Dreamer, PlaNet, SLAC
    simple.py    SimPLe
    presets.py   the rows of the paper's tables, and some of ours

Every field carries its meaning, its unit and its source, because `--help` prints them;
`fields.SOURCES` says what the sources are.
"""
