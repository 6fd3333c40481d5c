"""Service levels: how fast is the budget used, and since when?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.levels import used
from dashboards.kit.panels import REQUESTS_PER_SECOND, TIMES, Q, graph
from dashboards.kit.queries import rate, total

BURN_WINDOW = "1h"
"""The long window of the alert that pages first: the panel shows what pages."""
_BY = "model_name"
_GAVE_UP = total(rate("kvscope_request_abandoned_seconds_count"), _BY)


def row() -> Row:
    remedies = {
        "answered": "Refusals: the queue is full, add replicas. Errors: see the log.",
        "first token": "Compare with the queue and the pool on the overview.",
        "next token": "Large prefills, preemptions, or a GPU with low clocks.",
    }
    return Row(
        200,
        "How fast is it used?  (rate over an hour; 1x uses exactly the budget)",
        [
            graph(
                201 + index,
                f"Burn rate: {name}",
                "Burn rate of the budget, in multiples of the sustainable rate, by model. "
                f"{remedies[name]} The red line is where a budget of a month is gone in two days.",
                TIMES,
                Q(budget, "{{model_name}}"),  # finding the ten worst would double the cost
                steps=limits.BURN_RATE,
                span=8,
            )
            for index, (name, budget) in enumerate(used(BURN_WINDOW, _BY).items())
        ]
        + [
            graph(
                204,
                "Abandoned before the first token",
                "Requests whose clients went away before anything came, by model. The first-token "
                "curves leave them out; the promise counts those that waited longer than it "
                "allows. Some always do: a completion that the next keystroke makes useless.",
                REQUESTS_PER_SECOND,
                *outstanding(_GAVE_UP, "{{model_name}}", by="model_name"),
                calcs=("mean", "max"),
                span=24,
                height=6,
                when_absent="No server here reports abandoned requests: that takes our engine, or "
                "an observer in the server.",
            )
        ],
    )
