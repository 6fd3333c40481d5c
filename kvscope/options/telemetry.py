"""Destinations of an engine's events, and the names of metrics on a page: `--compat` and others."""

from dataclasses import dataclass
from typing import ClassVar

from kvscope.options.gpu_devices import GpuOptions
from kvscope.options.otlp import OtlpOptions
from kvscope.options.recording import RecordingOptions
from kvscope_engine.option import option
from kvscope_exporter.catalogue import COMPAT_SETS, DEFAULT_COMPAT

DEFAULT_SETS = ",".join(sorted(DEFAULT_COMPAT))
"""The default for our own engine, whose page is the only one."""
NO_SETS = "none"
"""The default for a page besides a server's own: a sum over both would count everything twice.
"""
_KNOWN = ", ".join(sorted(COMPAT_SETS))

COMPAT_HELP = (
    f"Other servers' metric names to serve as well, separated by commas: {_KNOWN}; or none."
)


def parse_compat(text: str) -> frozenset[str]:
    """`vllm,vllm-legacy` → a set; `none` is the empty one. Raises ValueError."""
    names = frozenset(part.strip() for part in text.split(",")) - {""}
    if names == {NO_SETS}:
        return frozenset()
    unknown = sorted(names - COMPAT_SETS)
    if unknown:
        raise ValueError(
            f"--compat {text!r}: {unknown[0]!r} is unknown; expected {_KNOWN}, or none"
        )
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Destinations of the engine's events."""

    PANEL: ClassVar[str] = "Telemetry"
    event_endpoint: str | None = option(
        None,
        "Publish all events for kvscope sidecar: ipc:///DIRECTORY/NAME.sock, tcp://127.0.0.1:PORT, "
        "or auto: serve-PORT.sock in KVSCOPE_RUN_DIR.",
        "ENDPOINT",
    )
    exporter: bool = option(
        True, "Serve /metrics from this process. --no-exporter leaves that to kvscope sidecar."
    )
    compat: str = option(DEFAULT_SETS, COMPAT_HELP, "SETS")
    recording: RecordingOptions = RecordingOptions()
    otlp: OtlpOptions = OtlpOptions()
    gpu: GpuOptions = GpuOptions()
    disable_log_stats: bool = option(
        False, "Emit no events and serve no /metrics.", flags=("--disable-log-stats",)
    )
    acts: bool = False
    """Whether a page may have the engine's own requests sent: in the demo."""

    def __post_init__(self) -> None:
        parse_compat(self.compat)
        if self.disable_log_stats and self.event_endpoint is not None:
            raise ValueError(
                "--event-endpoint has nothing to publish with --disable-log-stats: drop one"
            )
        if not self.disable_log_stats and not self.exporter and self.event_endpoint is None:
            raise ValueError(
                "--no-exporter without --event-endpoint leaves the events without a reader: add "
                "--event-endpoint, or give --disable-log-stats instead"
            )
        if not self.serves_page and (option := self.otlp.given):
            raise ValueError(
                f"{option} has nothing to send with {self.option_without_page}: drop one"
            )

    @property
    def compat_sets(self) -> frozenset[str]:
        """Compatibility sets on the page."""
        return parse_compat(self.compat)

    @property
    def serves_page(self) -> bool:
        return self.exporter and not self.disable_log_stats

    @property
    def option_without_page(self) -> str:
        """The option by which no page is served."""
        return "--disable-log-stats" if self.disable_log_stats else "--no-exporter"

    @property
    def reason_for_no_page(self) -> str:
        """The answer to a request for the page when it is not served."""
        if self.disable_log_stats:
            return "no metrics: this server runs with --disable-log-stats"
        return (
            "no metrics here: this server runs with --no-exporter and publishes its events at "
            f"{self.event_endpoint}; kvscope sidecar --events turns them into metrics"
        )
