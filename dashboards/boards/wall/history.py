"""Wall display: since when is it so?"""

from dashboards.boards.wall import figures
from dashboards.boards.wall.now import WORDS_PER_SECOND
from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN_OBJECTIVE
from dashboards.kit.panels import COUNT, OBJECTIVE, RATIO, SECONDS, Q, graph

_BY, _NAME = "model_name", "{{model_name}}"


def row() -> Row:
    return Row(
        200,
        "Since when?",
        [
            graph(
                201,
                "Time to first word, slowest 5 %",
                "From sending a request to its first token, by model, beside what is promised. A "
                "peak at the same hour every day: come earlier, or later.",
                SECONDS,
                *outstanding(figures.first_token(0.95, _BY), _NAME, by=_BY),
                FIRST_TOKEN_OBJECTIVE,
                span=6,
                listed=True,
            ),
            graph(
                202,
                "Speed of writing",
                "Tokens a second that one person sees, by model. It falls when many are served at "
                "once; below the line an answer visibly stutters.",
                WORDS_PER_SECOND,
                *outstanding(figures.speed(_BY), _NAME, by=_BY, lowest=True),
                steps=limits.TOKENS_A_SECOND,
                span=6,
                listed=True,
            ),
            graph(
                203,
                "Success",
                "Share of the requests that were answered, by model. A dip: requests failed, or "
                "were refused because the service was full; retry those.",
                RATIO,
                *outstanding(figures.succeeded(_BY), _NAME, by=_BY, lowest=True),
                Q("vector($answered / 100)", OBJECTIVE),
                low=0.9,
                high=1,
                span=6,
                listed=True,
            ),
            graph(
                204,
                "The queue",
                "Requests waiting for their turn, by model. If it keeps growing, demand exceeds "
                "what can be served.",
                COUNT,
                *outstanding(figures.waiting(_BY), _NAME, by=_BY),
                axis="requests",
                span=6,
                listed=True,
            ),
        ],
    )
