"""The alerts that test_provoked.py provokes, by the part of its run in which each of them fires.

A key is an alert's name and the labels by which its rules differ. An engine that is down and a card
that has failed have two names, by how many replicas are heard: here they have the first.
"""

from collections.abc import Mapping

from kvscope_alerts.rules import alerts
from tests.alerts.tools import WATCHDOG

_FEW = {"KvscopeReplicaDown": "KvscopeEngineDown", "KvscopeGpuDegraded": "KvscopeGpuFailed"}
_OF_FAILED = {"xid", "lost", "recovery", "xid-dcgm"}


def key(labels: Mapping[str, str]) -> str:
    """The key of an alert with these labels."""
    name, sign = labels["alertname"], labels.get("sign", "")
    if (name == "KvscopeReplicaDown" and sign != "fewer") or sign in _OF_FAILED:
        name = _FEW.get(name, name)
    own = (labels.get("objective", ""), sign, labels.get("what", ""))
    return " ".join(filter(None, (name, *own)))


def _of(name: str, *signs: str) -> set[str]:
    return {f"Kvscope{name} {sign}" for sign in signs}


SIDE_BY_SIDE = {
    *("KvscopePreemptionStorm", "KvscopePrefixHitRateCollapsed", "KvscopeHostOomRisk"),
    *("KvscopeEngineStalled", "KvscopeQueueStuck"),
    *_of("BudgetBurnsSlowly", "ttft fast", "ttft slowly", "itl fast", "itl slowly"),
    *_of("FiguresWrong", "events"),
    *_of("EngineDown", "unanswered", "ended", "restarts"),
    *_of("ServerNotReady", "unanswered", "state"),
    *_of("DeviceMemoryTight", "headroom", "retries", "oom", "neighbour"),
    *_of("GpuFailed", "xid", "lost", "recovery"),
    *_of("GpuDegraded", "xid-warning", "ecc", "remap"),
    *_of("GpuSlow", "clocks"),
    *_of("ReplicaSlow", "first-token", "inter-token"),
}
AFTERWARDS = {
    "KvscopeGpuUnread",
    *_of("FiguresWrong", "ledger", "fold", "observer", "page", "whatif"),
    *_of("EngineDown", "refuses"),
    *_of("BudgetBurnsSlowly", "errors fast", "errors slowly"),
    *_of("ReplicaFails", "engine"),
    *_of("GpuDegraded", "fewer"),
}
AT_LAST = {"KvscopeTargetAbsent", *_of("ManyTargetsDown", "namespace", "cluster")}
NOT_HERE = {
    *("KvscopeModelGone", "KvscopeReplicaIdle", "KvscopeRequestStarved", "KvscopeKvBlocksHeld"),
    *(
        "KvscopeNotAdmitting",
        "KvscopeSidecarDown",
        "KvscopeTrafficFell",
        "KvscopeFleetSlower",
        "KvscopeClientsGiveUp",
    ),
    *_of("ReplicaDown", "fewer"),
    *_of("EngineDown", "pod", "silent"),
    *_of("FiguresWrong", "configuration", "source"),
    *_of("FiguresWrong", "fleet-down", "fleet-full", "fleet-replicas", "fleet-names"),
    *_of("ReplicaSlow", "pool"),
    *_of("ReplicaFails", "api"),
    *_of("GpuSlow", "link", "heat"),
    *_of("GpuFailed", "xid-dcgm"),
    *_of("GpuDegraded", "xid-dcgm-warning"),
    *("KvscopeTtftBudgetBurns", "KvscopeItlBudgetBurns", "KvscopeErrorBudgetBurns"),
}
"""Engines that are fewer are compared with an hour ago for half an hour; shortened, both are twenty
seconds, and it is over when it could begin, as is a day with the one before. A model is gone when
each of its servers is. An engine that is not heard while its server is ready takes a second source.
Replicas here differ in size and traffic all the time. NVML's double changes its link in tests/gpu.
A server whose API fails by itself is a vLLM, a queue that is served in turn starves no one, and our
engine holds no blocks of ended requests. No process follows these servers as a fleet, no sidecar
has a configuration file, and there is neither kube-state-metrics nor DCGM's exporter. No model here
has a limit of its own, and few errors are many within seconds.
test_messages.py plays most of these, and alerts/tests/ has the cases of all."""
STANDING = _of("GpuFailed", "xid")
"""Fires until the process is replaced; here, until it is not scraped."""
EARLY = {
    *_of("BudgetBurnsSlowly", "errors fast", "errors slowly"),
    *("KvscopeEngineDown refuses", "KvscopeReplicaFails engine"),
    *AT_LAST,
    *NOT_HERE,
    WATCHDOG,
}
"""Steps that give up for lack of memory end requests with an error; a killed server is dead to the
sidecar that watches it; and Prometheus's first scrape comes seconds after its start."""
NAMES = sorted({key({"alertname": a.name, **a.labels}) for a in alerts()} - NOT_HERE - {WATCHDOG})
