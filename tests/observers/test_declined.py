"""The stream of an engine that is not observed."""

import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from kvscope_events.observers.declined import DeclinedObserver
from kvscope_events.observers.sglang import plugin
from tests.exporter.stream import hello
from tests.support.late_reader import reason_heard


def test_a_forked_child_that_ends_leaves_the_socket_to_its_parent(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    socket = tmp_path / "engine-0.sock"
    declined = DeclinedObserver(
        f"ipc://{socket}",
        lambda session: msgspec.structs.replace(hello(), session=session),
        "unknown",
    )
    child = os.fork()
    if not child:
        declined.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert reason_heard(f"ipc://{socket}") == "unknown"
    declined.close()
    assert not socket.exists()


def test_later_pipeline_stages_of_an_sglang_leave_the_reason_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", str(tmp_path))

    def stage(pp_rank: int) -> SimpleNamespace:
        ranks = {"attn_tp_rank": 0, "attn_dp_size": 1, "attn_dp_rank": 0, "dp_rank": None}
        parallel = SimpleNamespace(tp_rank=0, tp_size=1, pp_rank=pp_rank, **ranks)
        arguments = SimpleNamespace(model_path="tiny", served_model_name="tiny", pp_size=2)
        return SimpleNamespace(ps=parallel, server_args=arguments)

    assert not plugin.observe(stage(1), None)
    assert list(tmp_path.iterdir()) == []
    assert not plugin.observe(stage(0), None)
    try:
        assert (tmp_path / "engine-0.sock").exists()
    finally:
        while plugin.switches:
            plugin.switches.pop().close()
