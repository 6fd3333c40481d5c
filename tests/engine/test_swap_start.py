"""Settings of swapping: what is refused with which words, and an engine that swaps on the demo."""

import msgspec
import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_engine.build import Engine, build_engine
from kvscope_engine.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    PreemptionPolicy,
    SwapConfig,
)
from kvscope_engine.model.demo import NAME
from kvscope_engine.sizing import MainMemory, PoolSizeError
from kvscope_engine.swap.start import num_swap_blocks
from kvscope_events.bus import EventBus
from kvscope_events.events import Hello, PoolCreated, PoolSnapshot

GIB = 2**30


class Memory(MainMemory):
    """A host with so much left."""

    def free(self) -> int:
        return 3 * GIB


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"mode": "recompute", "space_gib": 4.0},
            "--swap-space 4 is of no use while preempted requests are recomputed: add "
            "--preemption-mode swap or auto",
        ),
        ({"mode": "swap", "space_gib": 0.0}, "--preemption-mode swap needs --swap-space"),
        ({"mode": "auto", "space_gib": -1.0}, "--swap-space must not be negative, got -1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    config: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        SwapConfig(**config)  # type: ignore[arg-type]


def test_the_space_is_4_gib_where_something_is_swapped_and_none_otherwise() -> None:
    assert SwapConfig().space_bytes == SwapConfig(space_gib=0).space_bytes == 0
    assert SwapConfig(mode="swap").space_bytes == SwapConfig(mode="auto").space_bytes == 4 * GIB
    assert SwapConfig(mode="swap", space_gib=0.5).space_bytes == GIB // 2


def test_a_space_that_the_host_has_not_got_is_refused_with_both_figures() -> None:
    config = SwapConfig(mode="swap", space_gib=2.5)
    assert num_swap_blocks(config, 2**20, Memory(), 0) == 2560
    with pytest.raises(PoolSizeError, match=r"--swap-space of 2.5 GiB: the host has 2 GiB"):
        num_swap_blocks(config, 2**20, Memory(), GIB)
    with pytest.raises(PoolSizeError, match=r"of 2.5 GiB holds no block of 4 GiB"):
        num_swap_blocks(config, 4 * GIB, Memory(), 0)
    assert num_swap_blocks(SwapConfig(), 2**20, Memory(), 0) == 0


def test_serve_refuses_a_swap_space_without_a_mode() -> None:
    result = CliRunner().invoke(app, ["engine", "serve", "--swap-space", "4"])
    assert result.exit_code == 2
    assert "add --preemption-mode swap or auto" in " ".join(result.output.split())


def build(mode: PreemptionPolicy) -> tuple[Engine, list[object]]:
    """The demo on a CPU, and what it said until it was ready."""
    bus = EventBus()
    subscription = bus.subscribe()
    config = EngineConfig(
        model=ModelConfig(model=NAME, device="cpu"),
        cache=CacheConfig(num_gpu_blocks_override=600),
        swap=SwapConfig(mode=mode, space_gib=None if mode == "recompute" else 0.01),
    )
    engine = build_engine(config, bus)
    bus.flush()
    told: list[object] = []
    while (taken := subscription.take()) is not None:
        told += taken[0].events
    return engine, told


@pytest.mark.parametrize("mode", ["swap", "auto"])
def test_an_engine_that_swaps_says_so_and_its_snapshot_has_the_swap_pool(
    mode: PreemptionPolicy,
) -> None:
    engine, told = build(mode)
    (created,) = (event for event in told if isinstance(event, PoolCreated))
    assert created.swap_blocks == int(0.01 * GIB) // created.bytes_per_block > 0
    assert all("BlocksSwapped" in event.tells for event in told if isinstance(event, Hello))
    _, snapshot = engine.introduction.snapshot()
    assert isinstance(snapshot, PoolSnapshot)
    assert (snapshot.swap_blocks, snapshot.swap_used) == (created.swap_blocks, 0)
    assert msgspec.msgpack.encode(snapshot)


def test_an_engine_that_recomputes_has_no_swap_pool() -> None:
    engine, told = build("recompute")
    (created,) = (event for event in told if isinstance(event, PoolCreated))
    assert created.swap_blocks == 0
    assert "BlocksSwapped" not in engine.hello.tells
