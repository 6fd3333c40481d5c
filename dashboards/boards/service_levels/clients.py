"""Service levels: what clients saw of the API servers that are observed."""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding, quantile_lines
from dashboards.kit.frame import Row
from dashboards.kit.panels import FULL, REQUESTS_PER_SECOND, SECONDS, Q, graph, quantiles
from dashboards.kit.queries import SERVER, quantile, rate, total
from kvscope_monitoring.formulas import share

_GAVE_UP = total(rate("kvscope_request_abandoned_seconds_count"), "model_name")
_FRONT_END = f'{SERVER},model_name=~"$model"'
"""One API server may serve several engines: its families have no engine."""
_FIRST_PART = "kvscope_front_end_first_part_seconds"
_FIRST_TOKEN = "kvscope_time_to_first_token_seconds"
_ABSENT = f"{FULL} It takes a vLLM with kvscope's observer."


def _mean(family: str, **labels: str) -> str:
    spent, requests = (
        total(rate(f"{family}_{part}", _FRONT_END, **labels)) for part in ("sum", "count")
    )
    return share(spent, requests)


_BEFORE, _AFTER = (
    _mean("kvscope_front_end_seconds", place=place) for place in ("before_engine", "after_engine")
)
_QUEUE, _WORK = (
    _mean("kvscope_front_end_tokenizer_seconds", part=part) for part in ("queue", "work")
)
_ELSE = f"clamp_min({_BEFORE} - ({_QUEUE} + {_WORK} or 0 * {_BEFORE}), 0)"


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
                span=6,
                height=9,
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
                *quantile_lines(_FIRST_TOKEN, 0.95, legend="p{}, engines alone"),
                colours={"p95, engines alone": "purple"},
                coarse=True,
                span=6,
                height=9,
                when_absent=_ABSENT,
            ),
            graph(
                403,
                "Time outside the engine",
                "Mean time of a generating request outside the engine. queue: for a thread of the "
                "tokenizer (--renderer-num-workers). tokenizer: chat template and tokenization. "
                "else before: parsing, and a busy API server; add some (--api-server-count). "
                "after: detokenization, and clients that read slowly.",
                SECONDS,
                Q(_QUEUE, "queue"),
                Q(_WORK, "tokenizer"),
                Q(_ELSE, "else before"),
                Q(_AFTER, "after the engine"),
                colours={
                    **{"queue": "red", "tokenizer": "light-blue"},
                    **{"else before": "blue", "after the engine": "orange"},
                },
                stacked=True,
                span=6,
                height=9,
                calcs=("mean", "max"),
                when_absent=_ABSENT,
            ),
            graph(
                404,
                "Abandoned before the first token",
                "Requests whose clients went away before anything came, by model. The first-token "
                "curves leave them out; the promise counts those that waited longer than it "
                "allows. Some always do: a completion that the next keystroke makes useless.",
                REQUESTS_PER_SECOND,
                *outstanding(_GAVE_UP, "{{model_name}}", by="model_name"),
                calcs=("mean", "max"),
                span=6,
                height=9,
                when_absent="No server here reports abandoned requests: that takes our engine, or "
                "an observer in the server.",
            ),
        ],
    )
