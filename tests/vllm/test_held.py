"""Blocks that a vLLM's connector keeps after its requests have ended: families and the alert."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvscope_alerts.kv_pool import kv_pool_groups
from kvscope_alerts.timing import Timing
from tests.support.pages import sample
from tests.support.prometheus import prometheus
from tests.support.waiting import wait_for
from tests.vllm.observed import SMALL, Observed, observed

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(600)]

CONNECTOR = Path(__file__).with_name("holding.py")
GIVE_UP_SECONDS = 15.0
TRANSFER = {
    "kv_connector": "HoldingConnector",
    "kv_connector_module_path": CONNECTOR.stem,
    "kv_connector_extra_config": {"give_up_seconds": GIVE_UP_SECONDS},
    "kv_role": "kv_producer",
}
FAST_SECONDS = 1.0
"""Time after which a decode server that is alive fetches."""
USABLE = 119
"""Blocks of SMALL."""


@pytest.mark.weekly
def test_a_connector_that_holds_blocks_after_the_end(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    options = (*SMALL, "--kv-transfer-config", json.dumps(TRANSFER))
    made = models("llama")
    with observed(vllm_python, made, tmp_path, *options, modules=(CONNECTOR,)) as vllm:
        assert _held(vllm) == {"transfer": 0, "load": 0}
        assert vllm.value("kvscope_kv_oldest_hold_seconds") is None
        with prometheus(vllm.url.removeprefix("http://"), tmp_path) as watching:
            _fetched_soon(vllm)
            assert watching.ask(_alert(Timing())) == []
            _never_fetched(vllm)
            watching.wait_for(_alert(Timing()))
            (share,) = watching.ask(_alert(Timing()))
            assert 0.25 < share <= 1
            wait_for(lambda: not watching.ask(_alert(Timing())), "it resolves")
        wait_for(lambda: not _held(vllm)["transfer"], "all are given up")
        assert vllm.assert_equal() > 20
        assert _held(vllm) == {"transfer": 0, "load": 0}
        assert vllm.value("kvscope_kv_oldest_hold_seconds") is None
        assert vllm.value("kvscope_kv_blocks", state="active") == 0


def _fetched_soon(vllm: Observed) -> None:
    """Blocks of a request that is over, for as long as its KV is on the way."""
    vllm.server.complete("x" * 200, 8, kv_transfer_params={"seconds": FAST_SECONDS})
    wait_for(lambda: _held(vllm)["transfer"], "its blocks are held")
    page = vllm.page()
    blocks = -(-(200 + 8 - 1) // 32)  # the last token is never computed
    assert sample(page, "kvscope_kv_held_blocks", reason="transfer") == blocks
    assert sample(page, "kvscope_kv_blocks", state="active") == blocks
    assert sample(page, "kvscope_sequences", state="running") == 0
    wait_for(lambda: not _held(vllm)["transfer"], "its blocks are back")


def _never_fetched(vllm: Observed) -> None:
    """The decode server is gone: ended requests fill the pool."""
    for number in range(9):
        vllm.server.complete(f"{number}" + "y" * 400, 8)
    wait_for(lambda: _held(vllm)["transfer"] >= 9 * 13, "the blocks of all nine are held")
    page = vllm.page()
    held = sample(page, "kvscope_kv_held_blocks", reason="transfer")
    assert held == 9 * 13 == sample(page, "kvscope_kv_blocks", state="active")
    assert held > 0.9 * USABLE
    oldest = sample(page, "kvscope_kv_oldest_hold_seconds")
    assert oldest is not None
    assert 0 < oldest < GIVE_UP_SECONDS
    wait_for(
        lambda: (vllm.value("kvscope_kv_oldest_hold_seconds") or 0) > GIVE_UP_SECONDS / 2,
        "it grows",
    )


def _held(vllm: Observed) -> dict[str, float]:
    page = vllm.page()
    found = {
        reason: sample(page, "kvscope_kv_held_blocks", reason=reason)
        for reason in ("transfer", "load")
    }
    return {reason: blocks for reason, blocks in found.items() if blocks is not None}


def _alert(timing: Timing) -> str:
    (expression,) = (
        rule.expr
        for group in kv_pool_groups(timing)
        for rule in group.rules
        if getattr(rule, "name", "") == "KvscopeKvBlocksHeld"
    )
    return expression
