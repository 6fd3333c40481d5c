"""Service levels: is the promise kept, how fast is its budget used, and since when?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN, broken, used
from dashboards.kit.panels import COUNT, RATIO, TIMES, Q, graph
from dashboards.kit.queries import WHOLE_RANGE, over_range, total
from dashboards.kit.tables import Column, rows

BURN_WINDOW = "1h"
"""The long window of the alert that pages first: the panel shows what pages."""
_BY = "model_name"


def _budget(title: str) -> Column:
    return Column(title, TIMES, limits.BUDGET_USED, decimals=1)


def row() -> Row:
    remedies = {
        "answered": "Refusals: the queue is full, add replicas. Errors: see the log.",
        "first token": "Compare with the queue and the pool on the overview.",
        "next token": "Large prefills, preemptions, or a GPU with low clocks.",
    }
    shares, budgets = broken(WHOLE_RANGE, _BY), used(WHOLE_RANGE, _BY)
    return Row(
        200,
        "Is the promise kept?  (1x uses exactly the error budget)",
        [
            rows(
                201,
                "Models",
                "One line for each model, over the time range on screen. Budget: at 1x it is used "
                "up, and the promise is broken; see below since when, then the overview for why. "
                "Targets are chosen above; alerts have objectives of their own, set in their "
                "generator.",
                Q(total(over_range(f"{FIRST_TOKEN}_count"), _BY), "requests"),
                Q(shares["answered"], "failed"),
                Q(budgets["answered"], "failed_budget"),
                Q(shares["first token"], "late"),
                Q(budgets["first token"], "late_budget"),
                Q(shares["next token"], "halting"),
                Q(budgets["next token"], "halting_budget"),
                columns={
                    "model_name": Column("Model"),
                    "requests": Column("Requests", COUNT, decimals=0),
                    "failed": Column("Failed", RATIO),
                    "failed_budget": _budget("Budget, answered"),
                    "late": Column("Late first tokens", RATIO),
                    "late_budget": _budget("Budget, first token"),
                    "halting": Column("Late next tokens", RATIO),
                    "halting_budget": _budget("Budget, next token"),
                },
                height=5,
                worst_first=("Budget, answered",),
                span=24,
            ),
            *(
                graph(
                    202 + index,
                    f"Burn rate: {name}",
                    "Burn rate of the budget over an hour, in multiples of the sustainable rate, "
                    f"by model. {remedies[name]} The red line is where a budget of a month is gone "
                    "in two days.",
                    TIMES,
                    Q(budget, "{{model_name}}"),  # finding the ten worst would double the cost
                    steps=limits.BURN_RATE,
                    span=8,
                )
                for index, (name, budget) in enumerate(used(BURN_WINDOW, _BY).items())
            ),
        ],
    )
