"""Front end: what the API server of an observed vLLM answers, as its clients see it."""

from typing import get_args

from kvscope_events.vocabulary import RequestPlace, Route
from kvscope_exporter.catalogue.metric import Labels, Metric
from kvscope_exporter.state import buckets
from kvscope_exporter.state.front_end import CLASSES

FRONT_END_PLACES = get_args(RequestPlace)
_PROCESS: Labels = {"model_name": None, "front_end": None}
"""One front end may serve several engines."""

FRONT_END = (
    Metric(
        name="kvscope_front_end_answers_total",
        kind="counter",
        help="POST requests answered by the API server, by route and class of status.",
        notes="left: the client left before the end. 4xx is without 429. An error in the middle "
        "of a stream has status 200.",
        unit="answers",
        group="front_end",
        detail="full",
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
        detail="full",
        labels=_PROCESS,
        buckets=buckets.FIRST_TOKEN_SECONDS,
        otel_name="kvscope.front_end.first_part",
        events=("AnswerSent",),
    ),
    Metric(
        name="kvscope_front_end_seconds",
        kind="summary",
        help="Time of requests in the API server, before the engine and after its last token.",
        notes="Before: parsing, the chat template, tokenization. After: detokenization and "
        "delivery; known if the engine ended the request, and runs on the same host.",
        unit="seconds",
        group="front_end",
        detail="full",
        labels={**_PROCESS, "place": ("before_engine", "after_engine")},
        otel_name="kvscope.front_end.beside_engine",
        events=("AnswerSent",),
    ),
    Metric(
        name="kvscope_front_end_tokenizer_seconds",
        kind="summary",
        help="Time of requests before the engine in the tokenizer and in its queue.",
        notes="A part of kvscope_front_end_seconds before the engine; prompts of one request add "
        "up. Empty where prompts are tokenized elsewhere, or came as tokens.",
        unit="seconds",
        group="front_end",
        detail="full",
        labels={**_PROCESS, "part": ("queue", "work")},
        otel_name="kvscope.front_end.tokenizer",
        events=("AnswerSent",),
    ),
    Metric(
        name="kvscope_front_end_requests",
        kind="gauge",
        help="Requests that the API server has taken and not answered, by where they are.",
        notes="Each second. Those before the engine are in no other figure yet.",
        unit="requests",
        group="front_end",
        detail="full",
        labels={**_PROCESS, "place": FRONT_END_PLACES},
        otel_name="kvscope.front_end.requests",
        events=("FrontEndSampled",),
    ),
    Metric(
        name="kvscope_front_end_tokenizer_waiting",
        kind="gauge",
        help="Calls that wait for a thread of the API server's tokenizer: chat templates and "
        "prompts.",
        notes="Each second.",
        unit="calls",
        group="front_end",
        detail="full",
        labels=_PROCESS,
        otel_name="kvscope.front_end.tokenizer.waiting",
        events=("FrontEndSampled",),
    ),
)
