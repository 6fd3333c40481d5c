"""The forecast of a real server whose load ends: gone in seconds, as is the time to exhaustion."""

import httpx
import pytest

from kvscope_exporter.state.exhaustion import HORIZONS
from tests.support.pages import sample
from tests.support.process import forked_kvscope
from tests.support.waiting import wait_for

LOAD_SECONDS = 45
"""Enough for half a minute of observation."""

GONE_SECONDS = 20


@pytest.mark.nightly
def test_a_server_whose_load_has_ended_is_not_about_to_run_out() -> None:
    blocks = ("--num-gpu-blocks-override", "399")
    with (
        forked_kvscope("engine", "serve", "--port", "0", *blocks) as server,
        httpx.Client() as client,
    ):
        url = server.find(r"serving \S+ at (\S+)/v1")
        options = ("--duration", str(LOAD_SECONDS), "--concurrency", "16")
        with forked_kvscope("load", "chat", url, *options) as load:
            name = "kvscope_kv_exhaustion_probability"

            def page() -> str:
                return client.get(f"{url}/metrics").text

            def forecast() -> float | None:
                return sample(page(), name, horizon_seconds="10")

            wait_for(lambda: forecast() is not None, "a forecast", 2 * LOAD_SECONDS)
            assert load.wait(4 * LOAD_SECONDS) == 0, load.text
        # The newest may be from before the end.
        wait_for(lambda: forecast() is None, "no forecast of an idle engine", GONE_SECONDS)
        idle = page()
        assert sample(idle, "kvscope_kv_active_ratio") == 0
        assert sample(idle, "kvscope_kv_time_to_exhaustion_seconds") is None
        for horizon in HORIZONS:
            assert sample(idle, name, horizon_seconds=str(horizon)) is None
