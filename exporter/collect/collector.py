"""The collector: drains, holds the folds still, and yields every family that is known."""

from collections.abc import Iterable, Iterator
from itertools import chain

from prometheus_client.core import Metric as Family

from exporter.clock import Clock
from exporter.collect.exhaustion import collect_exhaustion
from exporter.collect.families import Families
from exporter.collect.machine import machine_parts
from exporter.collect.own import (
    build_version,
    collect_build,
    collect_census,
    collect_pipeline,
    collect_source,
)
from exporter.collect.pool import collect_churn, collect_ledger
from exporter.collect.prefix import collect_prefix
from exporter.collect.requests import (
    collect_latency,
    collect_preemption,
    collect_requests,
    collect_steps,
)
from exporter.collect.sizing import collect_sizing
from exporter.collect.vllm import (
    collect_vllm,
    collect_vllm_latency,
    collect_vllm_pool,
    collect_vllm_prefix,
    collect_vllm_requests,
)
from exporter.collect.vllm_legacy import (
    collect_legacy_latency,
    collect_legacy_pool,
    collect_legacy_prefix,
    collect_legacy_requests,
)
from exporter.engine_info import EngineInfo
from exporter.fold import Folds
from exporter.machine import Machine
from exporter.pipeline import Pipeline
from exporter.sources import Source

Part = tuple[str, Iterator[Family]]
"""A fold that must work, and the families read from it."""


class EngineCollector:
    """All families of one engine; registered with a prometheus_client registry."""

    def __init__(
        self,
        engine: EngineInfo,
        source: Source,
        pipeline: Pipeline,
        folds: Folds,
        machine: Machine,
        *,
        compat: frozenset[str],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._source = source
        self._pipeline = pipeline
        self._folds = folds
        self._machine = machine
        self._clock = clock
        self._compat = compat
        self._families = Families(
            {"model_name": engine.model_name, "engine": engine.engine}, clock.wall_seconds
        )
        self._build = build_version()
        self.scrape_seconds: float | None = None
        """Duration of the last scrape, set by whoever times it."""

    def collect(self) -> Iterable[Family]:
        """Everything is read before the folds move on; rendering happens later."""
        with self._pipeline.settled():
            errors = self._pipeline.errors
            parts = chain(self._own_names(), self._vllm(), self._vllm_legacy())
            known = [part for fold, part in parts if not errors.get(fold)]
            return [family for part in known for family in part]

    def _own_names(self) -> Iterator[Part]:
        families, folds = self._families, self._folds
        yield "ledger", collect_ledger(families, folds.ledger)
        yield "ledger", collect_sizing(families, folds.ledger, self._engine)
        yield "churn", collect_churn(families, folds.churn)
        if self._engine.enable_prefix_caching:
            yield "prefix", collect_prefix(families, folds.prefix)
        yield "requests", collect_requests(families, folds.requests)
        yield "latency", collect_latency(families, folds.latency)
        yield "steps", collect_steps(families, folds.steps)
        yield "preemption", collect_preemption(families, folds.preemption)
        yield "exhaustion", collect_exhaustion(families, folds.exhaustion)
        yield from machine_parts(families, self._machine, folds.device_memory, self._clock)
        yield "", collect_source(families, self._source, self._pipeline.running)
        yield "census", collect_census(families, folds.census)
        yield "", collect_pipeline(families, self._pipeline)
        if self.scrape_seconds is not None:
            yield (
                "",
                iter([families.single("kvscope_scrape_duration_seconds", self.scrape_seconds)]),
            )
        yield "", collect_build(families, self._build)

    def _vllm(self) -> Iterator[Part]:
        if self._folds.vllm is None:
            return
        families, folds = self._families, self._folds
        yield "requests", collect_vllm_requests(families, folds.requests)
        yield "ledger", collect_vllm_pool(families, folds.ledger, self._engine)
        yield "prefix", collect_vllm_prefix(families, folds.prefix)
        yield "latency", collect_vllm_latency(families, folds.latency)
        yield "vllm", collect_vllm(families, self._folds.vllm, self._engine)

    def _vllm_legacy(self) -> Iterator[Part]:
        if "vllm-legacy" not in self._compat:
            return
        families, folds = self._families, self._folds
        yield "ledger", collect_legacy_pool(families, folds.ledger)
        yield "prefix", collect_legacy_prefix(families, folds.prefix, self._engine)
        yield "requests", collect_legacy_requests(families, folds.requests)
        yield "latency", collect_legacy_latency(families, folds.latency)
