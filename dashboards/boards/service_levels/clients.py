"""Service levels: what clients saw of the API servers that are observed."""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import REQUESTS_PER_SECOND, SECONDS, Q, graph, quantiles
from dashboards.kit.queries import SERVER, quantile, rate, total
from monitoring.formulas import share

_FRONT_END = f'{SERVER},model_name=~"$model"'
"""One API server may serve several engines: its families have no engine."""
_FIRST_PART = "kvscope_front_end_first_part_seconds"
_ABSENT = "No API server is observed: that takes a vLLM with kvscope's observer."


def _beside(place: str) -> str:
    spent, requests = (
        total(rate(f"kvscope_front_end_seconds_{part}", _FRONT_END, place=place))
        for part in ("sum", "count")
    )
    return share(spent, requests)


def row() -> Row:
    answers = rate("kvscope_front_end_answers_total", _FRONT_END, route="generation")
    return Row(
        400,
        "What did clients see?  (API servers of observed vLLMs)",
        [
            graph(
                401,
                "Answers",
                "Answers to generating requests by class of status. 429: too many requests, add "
                "replicas. 5xx: the server's log has the reason. left: the client did not wait "
                "for the end. An error in the middle of a stream has status 200.",
                REQUESTS_PER_SECOND,
                Q(total(answers, "status"), "{{status}}"),
                stacked=True,
                colours=limits.ANSWER_COLOURS,
                span=8,
                listed=True,
                when_absent=_ABSENT,
            ),
            quantiles(
                402,
                "First part of the answer",
                "Time from a request's header to the first part of its streamed answer, beside "
                "the engine's own time to the first token. The same: look at the engine. Far "
                "apart: the API server is the bottleneck; see the next panel.",
                *(
                    Q(quantile(q, _FIRST_PART, selector=_FRONT_END), f"p{q * 100:g}")
                    for q in (0.5, 0.95)
                ),
                Q(quantile(0.95, "kvscope_time_to_first_token_seconds"), "p95, engines alone"),
                colours={"p50": "light-blue", "p95": "blue", "p95, engines alone": "purple"},
                coarse=True,
                span=8,
                when_absent=_ABSENT,
            ),
            graph(
                403,
                "Time beside the engine",
                "Mean time of a generating request outside the engine. before: parsing, the chat "
                "template, tokenization and the queue for it; add API servers "
                "(--api-server-count). after: detokenization, and clients that read slowly.",
                SECONDS,
                Q(_beside("before_engine"), "before the engine"),
                Q(_beside("after_engine"), "after the engine"),
                colours={"before the engine": "blue", "after the engine": "orange"},
                stacked=True,
                span=8,
                calcs=("mean", "max"),
                when_absent=_ABSENT,
            ),
        ],
    )
