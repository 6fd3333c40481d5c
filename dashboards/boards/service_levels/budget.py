"""Service levels, first row: was the promise kept in the time range on screen?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.levels import budget_used, late
from dashboards.kit.panels import COUNT, RATIO, Q, numbers
from dashboards.kit.queries import ENGINE, WHOLE_RANGE, over_range, total, worst
from dashboards.kit.tables import Column, rows
from monitoring import formulas

_BY = "model_name"
FIRST = "kvscope_time_to_first_token_seconds"
GAP = "kvscope_inter_token_latency_seconds"


def broken(window: str) -> dict[str, str]:
    """Share of what broke each promise, by model."""
    return {
        "answered": formulas.error_share(window, f"by ({_BY})", ENGINE),
        "first token": late(FIRST, "$ttft", window, _BY),
        "next token": late(GAP, "$itl", window, _BY),
    }


def used(window: str) -> dict[str, str]:
    """Share of each error budget, by model; 1 when all of it is gone."""
    return {
        name: budget_used(share, "$answered" if name == "answered" else "$objective")
        for name, share in broken(window).items()
    }


def row() -> Row:
    shares, budgets = broken(WHOLE_RANGE), used(WHOLE_RANGE)
    why = {
        "answered": "Requests that the server failed, or refused because its queue was full or "
        "its engine was dead.",
        "first token": "Requests whose first token came later than 'First token within' above.",
        "next token": "Tokens that came later after the one before than 'Next token within' above.",
    }
    then = "Of the model where most is used; above 100 % the promise is broken in this range."
    return Row(
        100,
        "Is the promise kept?  Error budget used in the time range on screen",
        [
            *(
                numbers(
                    101 + index,
                    f"Budget used: {name}",
                    f"{why[name]} {then} Red: see below since when, then the overview for the "
                    "cause.",
                    RATIO,
                    Q(worst(budgets[name]), ""),
                    steps=limits.BUDGET_USED,
                    span=8,
                    when_absent="idle",
                )
                for index, name in enumerate(budgets)
            ),
            rows(
                104,
                "Models",
                "One line for each model, the one with the least left first. What is promised is "
                "chosen above; alerts have objectives of their own, which their generator sets.",
                Q(total(over_range(f"{FIRST}_count"), _BY), "requests"),
                Q(shares["answered"], "failed"),
                Q(budgets["answered"], "failed_budget"),
                Q(shares["first token"], "late"),
                Q(budgets["first token"], "late_budget"),
                Q(shares["next token"], "halting"),
                Q(budgets["next token"], "halting_budget"),
                columns={
                    "model_name": Column("Model"),
                    "requests": Column("Requests", COUNT),
                    "failed": Column("Failed", RATIO),
                    "failed_budget": Column("Budget, answered", RATIO, limits.BUDGET_USED),
                    "late": Column("Late first tokens", RATIO),
                    "late_budget": Column("Budget, first token", RATIO, limits.BUDGET_USED),
                    "halting": Column("Late next tokens", RATIO),
                    "halting_budget": Column("Budget, next token", RATIO, limits.BUDGET_USED),
                },
                height=6,
                worst_first=("Budget, answered",),
            ),
        ],
    )
