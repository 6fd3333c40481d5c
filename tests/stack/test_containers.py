"""The stack as containers: built, healthy, scraped, alerting.

It needs a Docker daemon and, the first time, patience: in CI or with KVSCOPE_TEST_STACK=1.
"""

from collections.abc import Iterator

import httpx
import pytest

from tests.stack.daemon import docker, unable
from tests.support.prometheus import Prometheus
from tests.support.waiting import wait_for
from tests.vllm.server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SERVICES = ("engine", "load", "prometheus", "alertmanager")
"""Grafana, Tempo and the collector are on no Debian mirror: only a registry has them."""
PORTS = ("ENGINE_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT")
ALERT_SECONDS = 600.0


def _compose(*arguments: str, **environment: str) -> None:
    project = ["compose", "--project-name", "kvscope-test", "--profile", "demo"]
    docker([*project, *arguments], **environment)


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, str]]:
    """Ports of the stack, up and healthy."""
    reason = unable()
    if reason is not None:
        pytest.skip(f"THE CONTAINERS WERE NOT TRIED: {reason}")
    ports = {name: str(free_port()) for name in PORTS}
    try:
        _compose("up", "--build", "--wait", "--wait-timeout", "600", *SERVICES, **ports)
        yield ports
    finally:
        _compose("down", "--volumes", "--timeout", "20", **ports)


def test_the_stack_scrapes_runs_its_rules_and_alerts(ports: dict[str, str]) -> None:
    prometheus = Prometheus(f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}")
    prometheus.wait_for('up{job="kvscope"}')
    prometheus.wait_for("sum(rate(kvscope_step_tokens_total[30s]))")
    assert prometheus.ask("sum(prometheus_rule_group_rules)") > [20]
    assert prometheus.ask("prometheus_notifications_alertmanagers_discovered") == [1]
    _compose("stop", "engine", **ports)
    url = f"http://127.0.0.1:{ports['ALERTMANAGER_PORT']}/api/v2/alerts"

    def told() -> bool:
        alerts = httpx.get(url, timeout=5).json()
        return any(alert["labels"]["alertname"] == "KvscopeEngineDown" for alert in alerts)

    wait_for(told, "Alertmanager hears of the engine's end", ALERT_SECONDS)
