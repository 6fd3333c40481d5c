"""Service levels, first row: was the promise kept in the time range on screen?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN, broken, used
from dashboards.kit.panels import COUNT, RATIO, Q, numbers
from dashboards.kit.queries import WHOLE_RANGE, over_range, total, worst
from dashboards.kit.tables import Column, rows

_BY = "model_name"


def row() -> Row:
    shares, budgets = broken(WHOLE_RANGE, _BY), used(WHOLE_RANGE, _BY)
    why = {
        "answered": "Requests that the server failed, or refused because its queue was full or "
        "its engine was dead.",
        "first token": "Requests without a first token within the promise above, including those "
        "abandoned after it.",
        "next token": "Tokens that came later after their predecessor than 'Next token within' "
        "above.",
    }
    then = (
        "The model that has used most of its budget; above 100 % its promise is broken for this "
        "time range."
    )
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
                    decimals=0,
                    span=8,
                    when_absent="idle",
                )
                for index, name in enumerate(budgets)
            ),
            rows(
                104,
                "Models",
                "One line for each model, the least budget left first. The promise is chosen "
                "above; alerts have objectives of their own, set in their generator.",
                Q(total(over_range(f"{FIRST_TOKEN}_count"), _BY), "requests"),
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
