"""The sections of the page that face the paper: verdicts on its claims, and its tables."""

from collections.abc import Sequence

from rcrl_jax.report import (
    claims,
    dmc_table,
    figures,
    markup,
    score_tables,
    svg,
    tables,
    verdicts,
)
from rcrl_jax.report.markup import Markup, element
from rcrl_jax.results import pools
from rcrl_jax.results.runs import Run

_PUBLISHED_STEPS = 100_000


def verdict_section(runs: Sequence[Run]) -> Markup:
    """One entry a claim: the verdict in words, what the paper says; then all numbers in a table.

    Args:
        runs: finished ones, of any conditions.
    """
    judged = [verdicts.judge(claim, runs) for claim in claims.CLAIMS]
    entries = [
        element(
            "li",
            element("span", verdict.state, class_=f"state {verdict.state}"),
            f" {verdict.sentence} ",
            element("small", f"{verdict.published} The paper: {verdict.claim.statement}"),
        )
        for verdict in judged
    ]
    numbers = verdicts.to_table(judged)._replace(notes=())
    return markup.join(
        [
            element("ul", *entries, class_="verdicts"),
            element("details", element("summary", "All numbers"), _table(numbers)),
        ]
    )


def table_section(runs: Sequence[Run]) -> Markup:
    """The paper's tables with ours beside; every table says which runs it leaves out.

    Args:
        runs: finished ones, of any conditions.
    """
    atari = [run for run in runs if run.family == "atari"]
    steps = {run.env_steps for run in atari}
    budget = _PUBLISHED_STEPS if _PUBLISHED_STEPS in steps else max(steps, default=_PUBLISHED_STEPS)
    short, long = (
        pools.of_one_protocol(run for run in atari if run.env_steps == budget)
        for budget in (budget, 1_500_000)
    )
    control = pools.of_one_protocol(run for run in runs if run.family == "dmc")
    shown = [
        (score_tables.table1(short.runs, env_steps=budget), short.left_out),
        (score_tables.table2([*short.runs, *long.runs]), (*short.left_out, *long.left_out)),
        (dmc_table.dmc_table(control.runs), control.left_out),
    ]
    written = [_table(table._replace(notes=(*table.notes, *left_out))) for table, left_out in shown]
    name = "DMControl: ours over published curves"
    picture = svg.inline(figures.dmc_curves(control.runs), name, "dmc-curves")
    return markup.join(
        [
            *written,
            element(
                "figure",
                element("figcaption", name),
                element("div", picture, class_="scroll paper"),
                *(element("p", note, class_="note") for note in figures.published_notes()),
            ),
        ]
    )


def _table(table: tables.Table) -> Markup:
    return Markup(tables.to_html(table))
