"""The sections of the page that face the paper: verdicts on its claims, and its tables."""

from collections.abc import Sequence

from rcrl_jax import reference
from rcrl_jax.config import presets
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

_PUBLISHED_STEPS = {"atari": 100_000, "dmc": 500_000}
_TABLE_2_STEPS = (100_000, 1_500_000)


def verdict_section(runs: Sequence[Run]) -> Markup:
    """One entry a claim: the verdict in words, what the paper says; then all numbers in a table.

    Args:
        runs: finished ones, of any conditions.
    """
    # Where no run has the published budget, a claim is judged at the longest there is.
    budgets = {steps: _budget(runs, family, steps) for family, steps in _PUBLISHED_STEPS.items()}
    judged = [
        verdicts.judge(
            claim._replace(env_steps=budgets.get(claim.env_steps, claim.env_steps)), runs
        )
        for claim in claims.CLAIMS
    ]
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
    budget = _budget(runs, "atari", _PUBLISHED_STEPS["atari"])
    of_budget = {
        steps: pools.of_one_protocol(
            run
            for run in runs
            if (run.family, run.env_steps) == ("atari", steps) and run.arm in reference.PAPER_COLUMN
        )
        for steps in (budget, *_TABLE_2_STEPS)
    }
    short, long = (of_budget[steps] for steps in _TABLE_2_STEPS)
    control = pools.of_one_protocol(
        run for run in runs if run.family == "dmc" and run.arm in presets.DMC_PRESETS
    )
    shown = [
        (score_tables.table1(of_budget[budget].runs, env_steps=budget), of_budget[budget].left_out),
        (score_tables.table2([*short.runs, *long.runs]), (*short.left_out, *long.left_out)),
        (dmc_table.dmc_table(control.runs), control.left_out),
    ]
    written = [_table(table._replace(notes=(*table.notes, *left_out))) for table, left_out in shown]
    notes = figures.published_notes()
    name = "DMControl: ours over published curves"
    picture = svg.inline(figures.dmc_curves(control.runs), name, "dmc-curves")
    return markup.join(
        [
            *written,
            element(
                "figure",
                element("figcaption", name),
                element("div", picture, class_="scroll paper"),
                element(
                    "details",
                    element("summary", "How the published lines were measured"),
                    element("ul", *(element("li", n) for n in notes), class_="lines"),
                ),
            ),
        ]
    )


def _budget(runs: Sequence[Run], family: str, published: int) -> int:
    """The published budget if a run has it, else that of the longest runs: tables say which."""
    steps = {run.env_steps for run in runs if run.family == family}
    return published if published in steps else max(steps, default=published)


def _table(table: tables.Table) -> Markup:
    return Markup(tables.to_html(table))
