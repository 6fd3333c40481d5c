"""OpenTelemetry's own metrics of servers of generative AI, for the export by OTLP."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold import GenAi
from kvscope_events.events import Hello


def collect_gen_ai(families: Families, gen_ai: GenAi, _engine: Hello) -> Iterator[Family]:
    yield families.histograms("gen_ai_server_request_duration_seconds", gen_ai.duration)
    yield families.histograms("gen_ai_server_time_to_first_token_seconds", gen_ai.first_token)
    yield families.histograms(
        "gen_ai_server_time_per_output_token_seconds", gen_ai.time_per_output_token
    )
