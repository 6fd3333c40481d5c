"""The exporter of one engine: give it a subscription, start it, render pages."""

from collections.abc import Collection

from prometheus_client import CollectorRegistry, ProcessCollector

from kvscope_events.bus import Subscription
from exporter.catalogue import COMPAT_SETS
from exporter.clock import Clock
from exporter.collect import EngineCollector
from exporter.engine_info import EngineInfo
from exporter.fold import Folds, Vllm
from exporter.machine import Machine
from exporter.web.negotiation import negotiate
from exporter.pipeline import Pipeline
from exporter.sources import InProcessSource


class Exporter:
    """Folds an engine's events and renders them; a page can be rendered at any time.

        exporter = Exporter(bus.subscribe(), EngineInfo(model_name="demo", max_model_len=2048))
        exporter.start()
        app.include_router(metrics_router(exporter))
        ...
        exporter.stop()

    Before `start` and after `stop` a page is as fresh as at any time: rendering drains the queue.
    """

    def __init__(
        self,
        subscription: Subscription,
        engine: EngineInfo,
        *,
        compat: Collection[str] = COMPAT_SETS,
        machine: Machine | None = None,
        clock: Clock | None = None,
    ) -> None:
        unknown = set(compat) - COMPAT_SETS
        if unknown:
            raise ValueError(
                f"compat {', '.join(sorted(unknown))}: expected some of "
                f"{', '.join(sorted(COMPAT_SETS))}"
            )
        self._clock = clock or Clock()
        source = InProcessSource(subscription)
        folds = Folds(Vllm(engine.max_model_len) if "vllm" in compat else None)
        self.pipeline = Pipeline(source, folds.all, self._clock)
        self._collector = EngineCollector(
            engine,
            source,
            self.pipeline,
            folds,
            machine or Machine(),
            compat=frozenset(compat),
            clock=self._clock,
        )
        self.registry = CollectorRegistry()
        self.registry.register(self._collector)
        ProcessCollector(registry=self.registry)

    def start(self) -> None:
        """Begin to fold on a thread of its own; once only."""
        self.pipeline.start()

    def stop(self) -> None:
        """End the thread; pages can still be rendered."""
        self.pipeline.stop()

    def render(self, accept: str | None = None) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics where `accept` names it, else text."""
        began_ns = self._clock.monotonic_ns()
        encode, content_type = negotiate(accept or "")
        page = encode(self.registry)
        self._collector.scrape_seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        return page, content_type
