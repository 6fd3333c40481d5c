"""The story of docs/studies/oom.md: what each metric said at each stage, and what spoke first."""

import os
from collections.abc import Callable

import pytest

from kvscope_exporter.machine.gpu import GpuPoller
from tests.fakes.nvml import GIB, MIB, Simulated
from tests.gpu.story import PEAK, POOL, STAGES, first_spoken, table, tell
from tests.repo.checkout import ROOT

PAGE = ROOT / "docs" / "studies" / "oom.md"
BEGIN, END = "<!-- story: begin -->\n", "<!-- story: end -->\n"


def test_the_story_is_told_as_it_is_written(
    hardware: Simulated, start: Callable[..., GpuPoller]
) -> None:
    """KVSCOPE_UPDATE_STORY=1 rewrites the tables of docs/studies/oom.md."""
    said = list(tell(hardware, start()))
    idle, _, full, arrived, crowded, tight, failed = said

    assert {values["kv_pool"] for values in said} == {POOL}, "pool use is not device memory"
    assert [round(values["kv usage"], 2) for values in said[:3]] == [0.0, 0.4, 0.8]
    assert idle["free"] == full["free"]
    assert idle["headroom"] - idle["free"] == 350 * MIB

    assert arrived["other_processes"] == 9 * GIB
    assert full["free"] - arrived["free"] == 9 * GIB
    assert arrived["headroom"] > PEAK, "room enough, but the trend is there"
    assert arrived["used ratio"] > 0.9, "which a server with a large pool shows all day"

    assert full["free"] - crowded["free"] == 37 * GIB // 2
    assert crowded["headroom"] < PEAK
    assert crowded["alloc retries"] == 0, "nothing has failed yet"

    assert tight["alloc retries"] == 1
    assert tight["torch ooms"] == tight["engine ooms"] == 0

    assert failed["torch ooms"] == failed["engine ooms"] == 1
    assert failed["preempted, memory"] == 1
    assert failed["preempted, blocks"] == 0, "the pool was never short"
    assert failed["kv usage"] == full["kv usage"]

    assert first_spoken(said) == {
        "other processes grow": 4,
        "headroom below the next peak": 5,
        "alloc retries": 6,
        "out of memory": 7,
        "KV exhaustion": None,
    }
    assert len(said) == len(STAGES)

    head, rest = PAGE.read_text().split(BEGIN)
    written, tail = rest.split(END)
    told = table((stage.title for stage in STAGES), said)
    if os.environ.get("KVSCOPE_UPDATE_STORY"):
        PAGE.write_text(head + BEGIN + told + END + tail)
    else:
        assert written == told, "run it with KVSCOPE_UPDATE_STORY=1, then the graph"


def test_the_graph_is_drawn_from_the_page() -> None:
    pytest.importorskip("matplotlib")
    from tests.gpu.story_graph import read_stages

    stages = read_stages(PAGE.read_text())
    assert [stage["stage"].split(" ", 1)[1] for stage in stages] == [s.title for s in STAGES]
    assert stages[-1]["engine ooms"] == "1"
