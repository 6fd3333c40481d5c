"""OpenTelemetry's metrics for generative AI servers: exported by OTLP only.

On a page they would repeat kvscope's and vLLM's families with different bounds.
"""

from typing import get_args

from kvscope_events.vocabulary import Operation
from kvscope_exporter.catalogue.metric import ENGINE, Labels, Metric
from kvscope_exporter.state import buckets

OPERATIONS = tuple(operation for operation in get_args(Operation) if operation)
ERROR_TYPES = ("abort", "error")
"""Values of `error.type`: the client went away, the engine failed."""


def _gen_ai(
    name: str,
    help: str,
    bounds: tuple[float, ...],
    event: str,
    labels: Labels | None = None,
) -> Metric:
    return Metric(
        name=f"gen_ai_server_{name.replace('.', '_')}_seconds",
        kind="histogram",
        help=help,
        unit="seconds",
        group="gen_ai",
        labels={**ENGINE, "operation": OPERATIONS, **(labels or {})},
        buckets=bounds,
        otel_name=f"gen_ai.server.{name}",
        events=(event,),
    )


GEN_AI = (
    _gen_ai(
        "request.duration",
        "Time from a request's arrival to its end; with an error type where it did not succeed.",
        buckets.GEN_AI_REQUEST_SECONDS,
        "RequestFinished",
        {"error_type": ERROR_TYPES},
    ),
    _gen_ai(
        "time_to_first_token",
        "Time to first token, observed with that token.",
        buckets.GEN_AI_FIRST_TOKEN_SECONDS,
        "FirstToken",
    ),
    _gen_ai(
        "time_per_output_token",
        "Mean time per output token after the first, of sequences that succeeded.",
        buckets.GEN_AI_OUTPUT_TOKEN_SECONDS,
        "SequenceFinished",
    ),
)
