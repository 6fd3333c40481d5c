"""OpenTelemetry's own metrics of servers of generative AI, for the export by OTLP."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold import Latency
from kvscope_events.events import Hello


def collect_gen_ai(families: Families, latency: Latency, _engine: Hello) -> Iterator[Family]:
    yield families.histograms("gen_ai_server_request_duration_seconds", latency.duration_by_error)
    yield families.histogram("gen_ai_server_time_to_first_token_seconds", latency.first_token)
    yield families.histogram(
        "gen_ai_server_time_per_output_token_seconds", latency.time_per_output_token
    )
