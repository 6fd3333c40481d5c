"""The settings under which SGLang's scheduler is driven: small pools, so that there is pressure."""

from dataclasses import dataclass, field

_ONE = ("--max-total-tokens", "900")
_SIXTEEN = ("--max-total-tokens", "896", "--page-size", "16")
_TIERS = (*_SIXTEEN, "--enable-hierarchical-cache", "--hicache-ratio", "2")
COMMON = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
    *("--disable-cuda-graph", "--enable-metrics", "--context-length", "600"),
    *("--schedule-conservativeness", "0.05", "--max-running-requests", "8"),
    *("--watchdog-timeout", "3000"),
)


@dataclass(frozen=True)
class Scenario:
    """Arguments of the server, beside the common ones; variables; and what of the load differs."""

    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    priority: bool = False

    @property
    def has_tier(self) -> bool:
        return "--enable-hierarchical-cache" in self.arguments

    @property
    def names(self) -> bool:
        return self.caches and "KVSCOPE_OBSERVER_NAMES" not in self.environment

    @property
    def caches(self) -> bool:
        return "--disable-radix-cache" not in self.arguments


SCENARIOS = {
    "p1": Scenario((*_ONE, "--disable-overlap-schedule")),
    "p1-overlap": Scenario(_ONE),
    "p1-unnamed": Scenario(_ONE, {"KVSCOPE_OBSERVER_NAMES": "off"}),
    "p1-off": Scenario((*_ONE, "--disable-radix-cache")),
    "p1-chunked": Scenario((*_ONE, "--chunked-prefill-size", "64")),
    "p1-mixed": Scenario((*_ONE, "--chunked-prefill-size", "64", "--enable-mixed-chunk")),
    "p1-lfu": Scenario((*_ONE, "--radix-eviction-policy", "lfu")),
    "p16": Scenario((*_SIXTEEN, "--disable-overlap-schedule")),
    "p16-overlap": Scenario(_SIXTEEN),
    "p16-off": Scenario((*_SIXTEEN, "--disable-radix-cache")),
    "p16-chunked": Scenario((*_SIXTEEN, "--chunked-prefill-size", "64")),
    "p16-retracted": Scenario(_SIXTEEN, {"SGLANG_TEST_RETRACT": "1"}),
    "p16-priority": Scenario((*_SIXTEEN, "--enable-priority-scheduling"), priority=True),
    "p16-hicache": Scenario(_TIERS),
    "p16-writeback": Scenario((*_TIERS, "--hicache-write-policy", "write_back")),
}
PUBLISHING = "p16-published"
"""SGLang's own KV events are enabled, so that pages have names without us."""
IN_PYTHON = "p16-python"
"""The tree names pages for us, and can be made to stop."""
NAMED = (PUBLISHING, IN_PYTHON)
SWITCHED = {
    **{name: SCENARIOS[name] for name in ("p1-overlap", "p1-mixed", "p16", "p16-chunked")},
    **{name: SCENARIOS[name] for name in ("p16-off", "p16-hicache", "p16-retracted")},
    PUBLISHING: Scenario((*_SIXTEEN, "--kv-events-config", '{"publisher": "kept"}')),
    IN_PYTHON: Scenario(_SIXTEEN, {"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python"}),
}
"""In which the observer goes off and on; without names but in those of `NAMED`."""
