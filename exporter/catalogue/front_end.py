"""Front end: what the API server of an observed vLLM answers, as its clients see it."""

from typing import get_args

from exporter.catalogue.metric import Labels, Metric
from exporter.fold import buckets
from exporter.fold.front_end import CLASSES
from kvscope_events.vocabulary import Route

_PROCESS: Labels = {"model_name": None, "front_end": None}
"""One front end may serve several engines."""

FRONT_END = (
    Metric(
        name="kvscope_front_end_answers_total",
        kind="counter",
        help="POST requests that the API server's process answered, by route and class of status; "
        "left: the client left before the end.",
        notes="4xx is without 429. An error in the middle of a stream has status 200.",
        unit="answers",
        group="front_end",
        labels={**_PROCESS, "route": get_args(Route), "status": CLASSES},
        otel_name="kvscope.front_end.answers",
        events=("AnswerSent",),
    ),
    Metric(
        name="kvscope_front_end_first_part_seconds",
        kind="histogram",
        help="Time from a request's header to the first part of its streamed answer, sent to the "
        "client.",
        notes="The time to the first token as the client saw it, less the network.",
        unit="seconds",
        group="front_end",
        labels=_PROCESS,
        buckets=buckets.FIRST_TOKEN_SECONDS,
        otel_name="kvscope.front_end.first_part",
        events=("AnswerSent",),
    ),
    Metric(
        name="kvscope_front_end_seconds",
        kind="summary",
        help="Time of generating requests in the API server's process before the engine was given "
        "them, and from the engine's last token to the end of the answer.",
        notes="Before: parsing, the chat template, tokenization. After: detokenization and "
        "delivery; known if the engine ended the request, and runs on the same host.",
        unit="seconds",
        group="front_end",
        labels={**_PROCESS, "place": ("before_engine", "after_engine")},
        otel_name="kvscope.front_end.beside_engine",
        events=("AnswerSent",),
    ),
)
