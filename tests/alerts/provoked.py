"""The alerts that test_provoked.py provokes, by the part of its run in which each of them fires."""

from kvscope_alerts.rules import alerts
from tests.alerts.tools import WATCHDOG

SIDE_BY_SIDE = {
    *("KvscopeKvPoolSaturated", "KvscopeKvExhaustionPredicted", "KvscopeKvExhaustionImminent"),
    *("KvscopePreemptionStorm", "KvscopeTtftBudgetBurnsFast", "KvscopeTtftBudgetBurnsSlowly"),
    *("KvscopePrefixHitRateCollapsed", "KvscopePrefixCacheTooSmall"),
    *("KvscopeEventsDropped", "KvscopeTargetDown"),
    *("KvscopeDeviceOomRisk", "KvscopeDeviceAllocationRetries", "KvscopeDeviceOomRetried"),
    *("KvscopeDeviceOom", "KvscopeForeignProcessGrew", "KvscopeHostOomRisk"),
    *("KvscopeXidCritical", "KvscopeXidWarning", "KvscopeXidInfo", "KvscopeEccUncorrected"),
    *("KvscopeRowRemapPending", "KvscopeRowRemapFailed", "KvscopeGpuSlowedDown"),
    *("KvscopeGpuLost", "KvscopeGpuNeedsRecovery", "KvscopeEngineStalled", "KvscopeServerGone"),
    *("KvscopeTargetNeverUp", "KvscopeRestartLoop", "KvscopeQueueStuck", "KvscopeTtftOutlier"),
    *("KvscopeItlOutlier", "KvscopeItlBudgetBurnsFast", "KvscopeItlBudgetBurnsSlowly"),
    "KvscopeServerNotReady",
}
AFTERWARDS = {
    *("KvscopeNvmlDown", "KvscopeLedgerImbalance", "KvscopeFoldFailed", "KvscopeEngineDead"),
    *("KvscopeErrorBudgetBurnsFast", "KvscopeErrorBudgetBurnsSlowly", "KvscopeErrorOutlier"),
    *("KvscopeObserverStopped", "KvscopePageIncomplete", "KvscopeWhatifCurveWrong"),
    "KvscopeGpusFewer",
}
AT_LAST = {"KvscopeTargetAbsent", "KvscopeManyTargetsDown"}
NOT_HERE = {
    *("KvscopeReloadFailed", "KvscopeNotAdmitting"),
    *("KvscopeEnginesFewer", "KvscopeModelGone", "KvscopeSourceDown"),
    *("KvscopePoolSmaller", "KvscopeReplicaIdle", "KvscopeTierThrashes", "KvscopeGpuLinkSlow"),
    *("KvscopeServerFails", "KvscopeRequestStarved", "KvscopeKvBlocksHeld"),
    *("KvscopePrefixHitsVetoed", "KvscopeRoutingLossRose", "KvscopeFleetIncomplete"),
    "KvscopeFleetNotFollowed",
}
"""The first compares with an hour ago for half an hour; shortened, both are twenty seconds, and it
is over when it could begin. A model is gone when each of its servers is. An engine that is not
heard while its server is ready takes a second source. Replicas here differ in size and traffic
all the time. NVML's double changes its link in tests/gpu. A server whose API fails by itself is
a vLLM, a queue that is served in turn starves no one, and our engine holds no blocks of ended
requests, admits what fits and has one kind of layers. No process follows these servers as a
fleet. No sidecar here has a configuration file.
test_messages.py plays the first of these three, and alerts/tests/ has the cases of all."""
STANDING = {"KvscopeXidCritical"}
"""Fires until the process is replaced; here, until it is not scraped."""
EARLY = {
    *("KvscopeErrorBudgetBurnsFast", "KvscopeErrorBudgetBurnsSlowly", "KvscopeEngineDead"),
    *AT_LAST,
    *NOT_HERE,
    WATCHDOG,
}
"""Steps that give up for lack of memory end requests with an error; a killed server is dead to the
sidecar that watches it; and Prometheus's first scrape comes seconds after its start."""
NAMES = sorted({alert.name for alert in alerts()} - NOT_HERE - {WATCHDOG})
