"""`kvscope demo`: usage that rises and falls, hits, evictions and preemptions, by itself."""

import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.process import kvscope


def scrape(url: str) -> dict[str, float]:
    """Sums by name, and the usage by basis."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=5).text):
        for sample in family.samples:
            basis = sample.labels.get("basis")
            name = f"{sample.name}/{basis}" if basis else sample.name
            sums[name] = sums.get(name, 0) + sample.value
    return sums


@pytest.mark.slow
def test_demo_shows_pressure_and_ends_by_itself() -> None:
    with kvscope("demo", "--port", "0", "--duration", "23") as process:
        url = process.find(r"metrics +(\S+)/metrics")
        usages: list[float] = []
        last: dict[str, float] = {}
        while process.popen.poll() is None:
            try:
                last = scrape(url)
            except httpx.TransportError:
                break  # it ends
            usages.append(last.get("kvscope_kv_usage_ratio/active", 0.0))
            time.sleep(0.3)
        assert process.wait() == 0
    assert max(usages) > 0.9
    peak = usages.index(max(usages))
    assert min(usages[:peak]) < 0.5
    assert min(usages[peak:]) < max(usages) - 0.2
    assert last["kvscope_prefix_cache_hit_tokens_total"] > 0
    assert last["kvscope_kv_block_evictions_total"] > 0
    assert last["kvscope_preemptions_total"] > 0
    assert last["kvscope_kv_ledger_imbalance_blocks"] == 0
    assert f"{url}/v1/completions" in process.text
    assert "preempted" in process.text
    assert "Traceback" not in process.text
