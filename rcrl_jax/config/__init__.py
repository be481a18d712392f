"""What configurations have in common, and the presets.

Each agent family has its own frozen dataclass in `agents/<family>/config.py`.

    fields.py    how a field is defined, checked, listed and replaced
    choices.py   encoders of Rainbow and auxiliary tasks, by name
    base.py      what families share: the base class, groups of fields, checks
    world_models.py  what Dreamer, PlaNet and SLAC have in common
    presets.py   the rows of the paper's tables, and some of ours

Every field carries its meaning, its unit and its source, because `--help` prints them;
`fields.SOURCES` says what the sources are.
"""
