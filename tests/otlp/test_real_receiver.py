"""A real receiver takes what is sent, and answers queries with what the page says.

VictoriaMetrics receives OTLP since 1.93; Debian's Prometheus is built without its receiver. Where
no such VictoriaMetrics is on PATH, these tests are skipped.
"""

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from exporter.catalogue import CATALOGUE
from exporter.clock import Clock
from exporter.otlp.outlet import Outlet, Served
from exporter.otlp.settings import otlp_config
from exporter.watched.exporter import Exporter, in_process
from kvscope_events.bus import EventBus
from tests.exporter.machine import MACHINE
from tests.exporter.page import HELLO, families
from tests.exporter.scenario import STEPS
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PROGRAM = "victoria-metrics"
NAMING = "-opentelemetry.usePrometheusNaming"
SWITCHES = (
    NAMING,
    "-opentelemetry.promoteAllResourceAttributes=false",
    "-opentelemetry.promoteResourceAttributes=service.name,service.instance.id,service.version",
    "-opentelemetry.promoteScopeMetadata=false",
    "-search.latencyOffset=0s",
    "-retentionPeriod=1d",
)
RESOURCE = {"__name__", "job", "service_name", "service_instance_id", "service_version"}


@dataclass
class Stored:
    """A store, and the exporter that has sent to it."""

    exporter: Exporter
    url: str

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Instant query."""
        text = self.get("/api/v1/query", query=expression)
        result: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        return result

    def get(self, path: str, **parameters: str) -> bytes:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=5) as response:
            body: bytes = response.read()
            return body

    def ready(self) -> bool:
        try:
            return bool(self.get("/health"))
        except OSError:
            return False

    def has(self, expression: str) -> bool:
        self.get("/internal/force_flush")
        return bool(self.ask(expression))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """A VictoriaMetrics that has taken an export of a played engine."""
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"no {PROGRAM} on PATH")
    answer = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False)
    if NAMING not in answer.stdout + answer.stderr:
        pytest.skip(f"this {PROGRAM} receives no OTLP: it is older than 1.93")
    folder: Path = tmp_path_factory.mktemp("store")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [PROGRAM, *SWITCHES, f"-storageDataPath={folder}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"-httpListenAddr=127.0.0.1:{port}"], stdout=log, stderr=log
        )
    bus = EventBus()
    exporter = in_process(bus.subscribe(), machine=MACHINE)
    bus.emit(HELLO)
    for events in STEPS:
        for event in events:
            bus.emit(event)
        bus.flush()
    store = Stored(exporter, f"http://127.0.0.1:{port}")
    config = otlp_config("metrics", f"{store.url}/opentelemetry", {})
    assert config is not None
    served = [Served(instance="here:8000", exporter=exporter)]
    try:
        wait_for(store.ready, "the store starts")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
            outlet = Outlet(config, lambda: served, Clock())
        exporter.show(MACHINE, [outlet])
        with outlet:
            wait_for(lambda: store.has("kvscope_kv_blocks"), "the first export")
        store.get("/internal/force_flush")
        yield store
    finally:
        process.terminate()
        process.wait(10)


def stored_name(otel_name: str, text: str) -> str:
    """The name that the store gives a metric, found among those it has."""
    base = re.sub(r"\W", "_", otel_name)
    found = re.findall(rf"^{base}(?:_[a-z]+)*$", text, re.MULTILINE)
    assert found, otel_name
    return min(found, key=len)


def test_every_series_is_there_with_the_value_of_the_page(stored: Stored) -> None:
    page = families(stored.exporter)
    names = "\n".join({r["metric"]["__name__"] for r in stored.ask('{__name__=~"kvscope_.*"}')})
    skipped = {"kvscope_fold_seconds", "kvscope_otlp_exports"}  # they grow by themselves
    skipped |= {"kvscope_host_memory_usage_bytes"}
    compared = 0
    for row in CATALOGUE:
        family = page.get(row.family)
        if family is None or not row.otel_name.startswith("kvscope.") or row.family in skipped:
            continue
        if row.kind == "histogram" or (row.kind == "gauge" and row.unit == "seconds"):
            continue  # ages are others by now
        name = stored_name(row.otel_name, names)
        result = stored.ask(f'{{__name__="{name}"}}')
        values = {}
        for series in result:
            labels = {k: v for k, v in series["metric"].items() if k not in RESOURCE}
            values[tuple(sorted(labels.items()))] = float(series["value"][1])
        expected = {
            tuple(sorted(sample.labels.items())): float(sample.value) for sample in family.samples
        }
        assert values == pytest.approx(expected, rel=1e-11), row.name  # it keeps 12 digits
        compared += len(expected)
    assert compared > 150


def test_histograms_of_generative_ai_arrive_with_their_buckets(stored: Stored) -> None:
    buckets = stored.ask("gen_ai_server_time_to_first_token_seconds_bucket")
    by_bound = {float(s["metric"]["le"]): float(s["value"][1]) for s in buckets}
    assert by_bound[0.02] == 0
    assert by_bound[0.04] == 1
    (count,) = stored.ask("kvscope_time_to_first_token_seconds_count")
    assert by_bound[float("inf")] == float(count["value"][1])
    labels = buckets[0]["metric"]
    assert labels["gen_ai_operation_name"] == "text_completion"
    assert labels["gen_ai_provider_name"] == "kvscope"
    assert labels["gen_ai_request_model"] == "demo"


def test_our_histograms_have_the_buckets_of_the_page(stored: Stored) -> None:
    page = families(stored.exporter)["kvscope_time_to_first_token_seconds"]
    buckets = stored.ask("kvscope_time_to_first_token_seconds_bucket")
    by_bound = {float(s["metric"]["le"]): float(s["value"][1]) for s in buckets}
    shown = {float(s.labels["le"]): s.value for s in page.samples if s.name.endswith("_bucket")}
    assert by_bound == shown
    for part in ("sum", "count"):
        name = f"kvscope_time_to_first_token_seconds_{part}"
        (series,) = stored.ask(name)
        assert float(series["value"][1]) == next(s.value for s in page.samples if s.name == name)


def test_hardware_arrives_under_the_conventions_names(stored: Stored) -> None:
    (limit,) = stored.ask("hw_gpu_memory_limit_bytes")
    assert limit["metric"]["hw_id"].startswith("GPU-")
    (total,) = families(stored.exporter)["kvscope_gpu_memory_total_bytes"].samples
    assert float(limit["value"][1]) == total.value


def test_the_resource_is_known(stored: Stored) -> None:
    (series,) = stored.ask("kvscope_kv_capacity")
    assert series["metric"]["service_name"] == "kvscope"
    assert series["metric"]["service_instance_id"] == "here:8000"
    assert series["metric"]["service_version"]
