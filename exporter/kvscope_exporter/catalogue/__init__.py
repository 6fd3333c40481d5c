"""Every metric, declared once: collectors, documentation, dashboards, alerts and tests read it."""

from difflib import get_close_matches

from kvscope_exporter.catalogue.advice import ADVICE
from kvscope_exporter.catalogue.device_memory import DEVICE_MEMORY
from kvscope_exporter.catalogue.exhaustion import EXHAUSTION
from kvscope_exporter.catalogue.fleet import FLEET
from kvscope_exporter.catalogue.front_end import FRONT_END
from kvscope_exporter.catalogue.gen_ai import GEN_AI
from kvscope_exporter.catalogue.gpu import GPU
from kvscope_exporter.catalogue.groups import GROUP_METRICS
from kvscope_exporter.catalogue.host import HOST
from kvscope_exporter.catalogue.http import HTTP
from kvscope_exporter.catalogue.incident import INCIDENT
from kvscope_exporter.catalogue.metric import Metric
from kvscope_exporter.catalogue.observation import SELF
from kvscope_exporter.catalogue.otlp import OTLP
from kvscope_exporter.catalogue.page import PAGE
from kvscope_exporter.catalogue.pool import POOL
from kvscope_exporter.catalogue.preemption import PREEMPTION
from kvscope_exporter.catalogue.prefix import MISS_CAUSES, PREFIX
from kvscope_exporter.catalogue.regret import REGRET
from kvscope_exporter.catalogue.requests import REQUESTS
from kvscope_exporter.catalogue.server import SERVER
from kvscope_exporter.catalogue.sizing import SIZING
from kvscope_exporter.catalogue.tiers import TIERS
from kvscope_exporter.catalogue.vllm import VLLM
from kvscope_exporter.catalogue.vllm_legacy import VLLM_LEGACY
from kvscope_exporter.catalogue.vllm_residency import VLLM_RESIDENCY

__all__ = [
    "CATALOGUE",
    "COMPAT_SETS",
    "DEFAULT_COMPAT",
    "GROUPS",
    "MISS_CAUSES",
    "Metric",
    "metric",
    "name",
]

CATALOGUE = (
    *SERVER,
    *POOL,
    *REQUESTS,
    *PREEMPTION,
    *EXHAUSTION,
    *INCIDENT,
    *ADVICE,
    *SIZING,
    *PREFIX,
    *REGRET,
    *GROUP_METRICS,
    *TIERS,
    *PAGE,
    *FRONT_END,
    *DEVICE_MEMORY,
    *GPU,
    *HOST,
    *GEN_AI,
    *HTTP,
    *VLLM,
    *VLLM_RESIDENCY,
    *VLLM_LEGACY,
    *FLEET,
    *SELF,
    *OTLP,
)
"""Every metric, in page order: the server first, the exporter itself last."""

GROUPS: dict[str, str] = {
    "server": "Server",
    "pool": "Pool",
    "prefix": "Prefix cache",
    "tiers": "Cache tiers",
    "requests": "Requests and steps",
    "preemption": "Preemption",
    "exhaustion": "Exhaustion",
    "incident": "Incident",
    "advice": "Advice",
    "page": "Read from the server's page",
    "front_end": "Front end of an observed vLLM",
    "device_memory": "Device memory",
    "gpu": "GPU",
    "host": "Host",
    "fleet": "Fleet: of `kvscope fleet` alone",
    "self": "Self",
    "gen_ai": "OpenTelemetry's generative AI, by OTLP alone",
    "http": "HTTP server of the engine, under the names that vLLM's has",
    "vllm": "Compatibility: vLLM",
    "vllm-residency": "Compatibility: vLLM with `--kv-cache-metrics`",
    "vllm-legacy": "Compatibility: vLLM, old names",
}
"""Groups in the order of the documentation, with their titles; the key is that of the rows."""

COMPAT_SETS: frozenset[str] = frozenset({"vllm", "vllm-legacy", "vllm-residency"})
"""Groups of other servers' names, each of which can be switched on and off."""

DEFAULT_COMPAT: frozenset[str] = frozenset({"vllm"})
"""Served by our own engine by default, so that vLLM's dashboards work unchanged."""

_BY_NAME = {row.name: row for row in CATALOGUE}
assert len(_BY_NAME) == len(CATALOGUE), "a metric is declared twice"


def metric(name: str) -> Metric:
    """The row of a metric; raises KeyError with the nearest names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        near = get_close_matches(name, _BY_NAME, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise KeyError(f"no metric {name!r} in the catalogue{hint}") from None


def name(name: str) -> str:
    """The name itself, checked against the catalogue so that a typo in a query is noticed."""
    return metric(name).name
