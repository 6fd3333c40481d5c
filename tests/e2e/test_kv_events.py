"""`kvscope serve --kv-events-config` as a process: readers of KV events know its pool."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kv_publisher.listening import Subscriber, events_of
from tests.support.pages import sample
from tests.support.process import forked_kvscope
from tests.support.waiting import wait_for
from tests.support.watched import watched

pytestmark = [pytest.mark.slow, pytest.mark.waits]


def free_ports() -> tuple[int, int]:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        return one.getsockname()[1], other.getsockname()[1]


def test_a_sidecar_of_both_streams_shows_the_pool_once_and_the_tier_beside_it(
    tmp_path: Path,
) -> None:
    port, replay = free_ports()
    events: dict[str, Any] = {
        "enable_kv_cache_events": True,
        "endpoint": f"tcp://127.0.0.1:{port}",
        "replay_endpoint": f"tcp://127.0.0.1:{replay}",
        "bind": True,
    }
    with watched(tmp_path, "both", options=("--kv-events-config", json.dumps(events))) as (server,):
        configuration = tmp_path / "kvscope.yaml"
        configuration.write_text(
            json.dumps(
                {
                    "servers": [
                        {
                            "name": "both",
                            "kind": "kvscope",
                            "events": [server.endpoint],
                            "kv_events": [
                                {
                                    "endpoint": events["endpoint"],
                                    "replay": events["replay_endpoint"],
                                }
                            ],
                        }
                    ]
                }
            )
        )
        arguments = ("--port", "0", "--no-gpu", "--config", str(configuration))
        with forked_kvscope("sidecar", *arguments) as process:
            url = process.find(r"(http://[\d.]+:\d+)")
            for number in range(24):  # more than the pool holds
                server.complete(f"{number} " * 60)

            def page() -> str:
                return httpx.get(f"{url}/scrape", params={"target": "both"}, timeout=40).text

            def agree() -> bool:
                shown, engines = page(), server.page()
                cached = sample(engines, "kvscope_kv_blocks", state="cached")
                return (
                    cached is not None
                    and sample(shown, "kvscope_kv_blocks", state="cached") == cached
                    and sample(shown, "kvscope_kv_tier_blocks", tier="device") == cached
                )

            server.complete("one tenant's own " * 4, cache_salt="tenant")
            wait_for(agree, "the sidecar shows the pool and the tier")
            shown = page()
            heads = [line.rpartition(" ")[0] for line in shown.splitlines() if line[:1] != "#"]
            assert len(heads) == len(set(heads)), "a series twice"
            evicted = sample(shown, "kvscope_kv_block_evictions_total", cause="capacity")
            assert evicted, "nothing was evicted"
        with Subscriber(events["endpoint"], events["replay_endpoint"]) as router:
            told = [event for _, _, payload in router.replayed(0) for event in events_of(payload)]
        salted = [event for event in told if any(event.get("extra_keys", ()))]
        assert [event["extra_keys"][0] for event in salted] == [["tenant"]]
