"""The engine at start-up and `kvscope plan` agree, on a CPU and on a simulated CUDA device."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_engine.build import Engine, build_engine
from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.graphs import StaticDecoding
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.profile import graph_bytes
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.sizing import Footprint, MainMemory, MeasuredDevice, PoolSizeError, PoolSizer
from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import EVENT_NAMES, EngineEvent, Hello, PoolCreated, PoolSnapshot
from kvscope_events.producers import COUNTED_EVENTS, LOAD_EVENTS
from tests.support.checkpoints import ARCHITECTURES, make_checkpoint

MIB = 2**20
PEAK = 7 * MIB
CONTEXT = 20 * MIB


class SimulatedCuda:
    """A card with a neighbour; the engine's context and weights appear once it has loaded."""

    def __init__(self, total: int, neighbour: int = 0, taken: int = 0) -> None:
        self._total = total
        self._free = [total - neighbour, total - neighbour - taken]
        self.resets = 0

    def total(self) -> int:
        return self._total

    def free(self) -> int:
        return self._free.pop(0) if len(self._free) > 1 else self._free[0]

    def allocated(self) -> int:
        return MIB

    def peak(self) -> int:
        return MIB + PEAK

    def reset_peak(self) -> None:
        self.resets += 1

    def trim(self) -> None:
        pass


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("llama"), "llama")


def build(
    folder: Path, memory: MeasuredDevice | MainMemory, bus: EventBus | None = None, **cache: Any
) -> Engine:
    config = EngineConfig(
        model=ModelConfig(model=str(folder), device="cpu"),
        cache=CacheConfig(**cache),
        max_model_len=256,
        max_num_seqs=8,
        max_num_batched_tokens=128,
    )
    return build_engine(config, bus or EventBus(), memory)


def plan(folder: Path, *arguments: str) -> dict[str, Any]:
    common = ("--max-model-len", "256", "--concurrency", "8", "--max-num-batched-tokens", "128")
    common += ("--disable-hybrid-kv-cache-manager", "--tensor-parallel-size", "1")
    common += ("--dtype", "fp32")  # as the engine serves it on a CPU; vLLM would in 16 bits
    result = CliRunner().invoke(app, ["plan", str(folder), *common, *arguments, "-o", "json"])
    assert result.exit_code in (0, 1), result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def meminfo(folder: Path, total: int, available: int) -> MainMemory:
    file = folder / "meminfo"
    file.write_text(f"MemTotal: {total // 1024} kB\nMemAvailable: {available // 1024} kB\n")
    return MainMemory(file)


def events_of(bus: EventBus, subscription: Subscription) -> list[EngineEvent]:
    """All that was emitted and not taken yet."""
    bus.flush()
    events: list[EngineEvent] = []
    while (taken := subscription.take()) is not None:
        events += taken[0].events
    return events


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_and_blocks_agree_to_the_byte(architecture: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "model", architecture)
    engine = build(folder, meminfo(tmp_path, 1024 * MIB, 512 * MIB))
    planned = plan(folder, "--host-memory", "512MiB")
    assert engine.pool_size.terms["weights"] == planned["bytes"]["weights"]
    assert engine.pool_size.bytes_per_block == planned["bytes"]["per_block"]
    assert engine.pool_size.num_blocks == planned["pool"]["blocks"]


def test_a_cpu_takes_a_quarter_of_what_is_free(checkpoint: Path, tmp_path: Path) -> None:
    engine = build(checkpoint, meminfo(tmp_path, 64 * MIB, 4 * MIB))
    size = engine.pool_size
    assert size.num_blocks == MIB // size.bytes_per_block
    assert size.num_blocks == plan(checkpoint, "--host-memory", "4MiB")["pool"]["blocks"]
    assert size.terms.keys() & {"activation_peak", "non_torch"} == set()
    parts = {**size.terms}
    total = parts.pop("total")
    del parts["requested"]
    assert sum(parts.values()) == total


def test_a_simulated_cuda_device_agrees_with_the_plan(checkpoint: Path) -> None:
    weights = plan(checkpoint)["bytes"]["weights"]
    memory = SimulatedCuda(64 * MIB, neighbour=4 * MIB, taken=weights + CONTEXT)
    size = build(checkpoint, memory).pool_size
    assert memory.resets == 3  # the chunk, the prompts, the decode step
    terms = size.terms
    assert terms["weights"] == weights
    assert terms["activation_peak"] == PEAK
    assert terms["in_use_at_start"] == 4 * MIB
    assert terms["non_torch"] + terms["buffers"] == CONTEXT
    planned = plan(
        checkpoint,
        *("--gpu-memory", "64MiB", "--activation-memory", "7MiB", "--other-memory", "20MiB"),
    )
    assert planned["activations"]["source"] == "configured"
    assert size.num_blocks == planned["pool"]["blocks"]
    assert size.bytes_per_block == planned["bytes"]["per_block"]
    assert terms["kv_pool"] == planned["budget"]["chunked"]["kv_pool"]
    assert terms["requested"] == planned["budget"]["chunked"]["requested"]
    parts = {name: amount for name, amount in terms.items() if name not in ("total", "requested")}
    assert sum(parts.values()) == terms["total"] == 64 * MIB


def test_the_measured_peak_is_what_the_engine_reports(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def runner(*arguments: Any, **settings: Any) -> ModelRunner:
        given.append(settings)
        return ModelRunner(*arguments, **settings)

    monkeypatch.setattr("kvscope_engine.build.ModelRunner", runner)
    build(checkpoint, SimulatedCuda(64 * MIB, taken=30 * MIB))
    assert [settings["profiled_peak"] for settings in given] == [PEAK]


def test_the_share_moves_the_pool_with_all_memory(checkpoint: Path) -> None:
    full = build(checkpoint, SimulatedCuda(64 * MIB, taken=30 * MIB), gpu_memory_utilization=0.9)
    less = build(checkpoint, SimulatedCuda(64 * MIB, taken=30 * MIB), gpu_memory_utilization=0.8)
    lost = full.pool_size.terms["kv_pool"] - less.pool_size.terms["kv_pool"]
    assert abs(lost - 6.4 * MIB) <= full.pool_size.bytes_per_block


def test_every_term_is_logged_and_published(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    with caplog.at_level(logging.INFO, logger="kvscope_engine.sizing.pool"):
        engine = build(checkpoint, SimulatedCuda(64 * MIB, taken=30 * MIB), bus)
    for term in engine.pool_size.terms:
        assert f"  {term} " in caplog.text
    assert f"{engine.pool_size.tokens} tokens" in caplog.text
    (created,) = [e for e in events_of(bus, subscription) if isinstance(e, PoolCreated)]
    assert created.memory_terms == engine.pool_size.terms


def test_a_configured_size_has_no_terms_but_its_peak_is_measured(checkpoint: Path) -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    memory = SimulatedCuda(64 * MIB, neighbour=40 * MIB)  # less free than the share asks for
    engine = build(checkpoint, memory, bus, num_gpu_blocks_override=32)
    assert memory.resets == 3
    assert engine.pool_size.terms == {}
    assert engine.pool_size.activation_peak == PEAK
    (created,) = [e for e in events_of(bus, subscription) if isinstance(e, PoolCreated)]
    assert created.memory_terms == {}


def test_the_largest_steps_are_those_that_a_configured_pool_can_hold(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def peak(*arguments: Any, pool_tokens: int, **settings: Any) -> int:
        tried.append(pool_tokens)
        return PEAK

    monkeypatch.setattr("kvscope_engine.build.activation_peak", peak)
    build(checkpoint, SimulatedCuda(64 * MIB), num_gpu_blocks_override=32)
    assert tried == [32 * 16]


def test_watchers_learn_who_loads_before_there_is_a_pool(checkpoint: Path) -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    engine = build(checkpoint, SimulatedCuda(64 * MIB, taken=30 * MIB), bus)
    loading, ready, created = events_of(bus, subscription)
    assert isinstance(loading, Hello)
    assert isinstance(ready, Hello)
    assert isinstance(created, PoolCreated)
    assert (loading.ready, loading.cache_dtype) == (False, None)
    assert (ready.ready, ready.cache_dtype, ready.max_model_len) == (True, "float32", 256)
    assert ready.gpu_memory_utilization == 0.9
    assert ready.session == loading.session
    assert ready == engine.hello
    subscription.request_snapshot()
    hello, snapshot = events_of(bus, subscription)
    assert hello == ready
    assert isinstance(snapshot, PoolSnapshot)
    assert snapshot.memory_terms == engine.pool_size.terms


def test_a_failed_load_leaves_an_engine_that_is_not_ready(tmp_path: Path) -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    with pytest.raises(CheckpointError):
        build(tmp_path / "no-checkpoint-here", SimulatedCuda(64 * MIB), bus)
    subscription.request_snapshot()
    loading, still_loading = events_of(bus, subscription)
    assert isinstance(still_loading, Hello)
    assert loading == still_loading
    assert not still_loading.ready


def test_a_pool_of_a_configured_size_was_not_sized_by_a_share(checkpoint: Path) -> None:
    engine = build(checkpoint, SimulatedCuda(64 * MIB), num_gpu_blocks_override=32)
    assert engine.hello.gpu_memory_utilization is None


def test_without_prefix_caching_no_lookup_is_emitted(checkpoint: Path) -> None:
    with_cache = build(checkpoint, SimulatedCuda(64 * MIB), num_gpu_blocks_override=32)
    without = build(
        checkpoint,
        SimulatedCuda(64 * MIB),
        num_gpu_blocks_override=32,
        enable_prefix_caching=False,
    )
    numbered = set(EVENT_NAMES) - COUNTED_EVENTS - LOAD_EVENTS
    assert numbered - set(with_cache.hello.tells) == {
        "AnswerSent",
        "BlocksSwapped",
        "ContentDropped",
        "FrontEndSampled",
        "NamesCleared",
        "NamesRemoved",
        "NamesStored",
        "ObserverStopped",
        "StartProgressed",
        "StartupProfiled",
        "TierCreated",
        "TierTransferred",
    }
    assert set(with_cache.hello.tells) - set(without.hello.tells) == {"PrefixLookup"}


@pytest.mark.parametrize(("free", "warned"), [(6 * MIB, True), (24 * MIB, False)])
def test_a_configured_size_that_leaves_too_little_for_steps_is_warned_of(
    checkpoint: Path, caplog: pytest.LogCaptureFixture, free: int, warned: bool
) -> None:
    memory = SimulatedCuda(64 * MIB, neighbour=40 * MIB, taken=24 * MIB - free)
    with caplog.at_level(logging.WARNING, logger="kvscope_engine.sizing.pool"):
        build(checkpoint, memory, num_gpu_blocks_override=32)
    assert ("steps that take up to 7 MiB" in caplog.text) == warned


def test_less_free_than_the_share_is_refused_before_loading(tmp_path: Path) -> None:
    memory = SimulatedCuda(64 * MIB, neighbour=16 * MIB)
    with pytest.raises(PoolSizeError, match=r"57\.6 MiB of the device's 64 MiB, but 48 MiB.*0\.75"):
        build(tmp_path / "no-checkpoint-here", memory)


def test_a_pool_too_small_for_one_sequence_is_refused_with_its_terms(checkpoint: Path) -> None:
    with pytest.raises(PoolSizeError, match=r"lower --max-model-len; total 64 MiB, .*kv_pool 0 B"):
        build(checkpoint, SimulatedCuda(64 * MIB, taken=60 * MIB))


def test_memory_given_back_meanwhile_is_refused(checkpoint: Path) -> None:
    with pytest.raises(PoolSizeError, match="gave memory back"):
        build(checkpoint, SimulatedCuda(64 * MIB))


def test_a_pool_larger_than_free_memory_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(PoolSizeError, match="give it less"):
        build(checkpoint, meminfo(tmp_path, 64 * MIB, MIB), kv_cache_memory_bytes=2 * MIB)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(ValueError, match="gpu_memory_utilization"):
        CacheConfig(gpu_memory_utilization=share)


def test_a_step_that_does_not_fit_names_the_flags(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(runner: ModelRunner, plan: object) -> None:
        raise DeviceOutOfMemoryError(None)

    monkeypatch.setattr(ModelRunner, "execute", too_large)
    with pytest.raises(PoolSizeError, match=r"chunk: 1 sequences, 128 tokens.*--max-num-batched"):
        build(checkpoint, SimulatedCuda(64 * MIB, taken=30 * MIB))


def test_a_pool_whose_memory_was_taken_meanwhile_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(*_arguments: object, **_settings: object) -> torch.Tensor:
        return torch.empty(1 << 60, dtype=torch.uint8)  # torch's own error

    monkeypatch.setattr("kvscope_engine.build.ModelRunner", allocate)
    with pytest.raises(
        PoolSizeError, match=r"no memory for a pool of 32 blocks, .* find what took it"
    ):
        build(checkpoint, SimulatedCuda(64 * MIB), num_gpu_blocks_override=32)


def test_fp8_halves_a_16_bit_block_and_is_announced(checkpoint: Path) -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    config = EngineConfig(
        model=ModelConfig(model=str(checkpoint), device="cpu", dtype="bfloat16"),
        cache=CacheConfig(kv_cache_memory_bytes=MIB, kv_cache_dtype="fp8"),
        max_model_len=256,
    )
    size = build_engine(config, bus).pool_size
    half = plan(checkpoint, "--dtype", "bf16", "--kv-dtype", "fp8")
    whole = plan(checkpoint, "--dtype", "bf16")
    assert size.bytes_per_block == half["bytes"]["per_block"]
    assert size.bytes_per_block * 2 == whole["bytes"]["per_block"]
    assert size.num_blocks == MIB // size.bytes_per_block
    hellos = [event for event in events_of(bus, subscription) if isinstance(event, Hello)]
    assert hellos[-1].cache_dtype == "float8_e4m3fn"


def test_triton_is_refused_on_a_cpu_before_a_model_is_loaded(tmp_path: Path) -> None:
    config = EngineConfig(
        model=ModelConfig(model=str(tmp_path / "none"), device="cpu", attention_backend="triton"),
        cache=CacheConfig(),
    )
    with pytest.raises(ValueError, match=r"--attention-backend triton: .* the model is on the CPU"):
        build_engine(config, EventBus())


def test_graphs_take_their_memory_from_the_pool(checkpoint: Path) -> None:
    sizes = []
    for graphs in (0, 6 * MIB):
        memory = SimulatedCuda(64 * MIB, taken=30 * MIB)
        footprint = Footprint(weights=9 * MIB, buffers=MIB, bytes_per_block=MIB)
        limits = SchedulerConfig(max_model_len=16, max_num_seqs=4)
        sizer = PoolSizer(CacheConfig(), memory)
        sizes.append(sizer.size(limits, footprint, lambda tokens: PEAK, lambda taken=graphs: taken))
    without, with_graphs = (size.terms for size in sizes)
    assert with_graphs["non_torch"] - without["non_torch"] == 6 * MIB
    assert without["kv_pool"] - with_graphs["kv_pool"] == 6 * MIB
    assert with_graphs["unclaimed"] == without["unclaimed"]
    assert with_graphs["activation_peak"] == PEAK


@pytest.mark.parametrize("captured", [True, False])
def test_what_graphs_take_is_measured_over_a_pool_of_one_block(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, captured: bool
) -> None:
    memory = SimulatedCuda(64 * MIB, taken=30 * MIB)
    pools: list[int] = []

    def capture(runner: ModelRunner) -> bool:
        pools.append(runner.cache.num_blocks)
        memory._free = [29 * MIB]
        return captured

    monkeypatch.setattr(ModelRunner, "capture_graphs", capture)
    model = load_model(ModelConfig(model=str(checkpoint), device="cpu")).model
    memory.free()
    never_run: Any = object()
    static = StaticDecoding(attention=lambda *_: never_run, max_num_seqs=2, max_model_len=64)
    execution = Execution(static=static)
    taken = graph_bytes(model, memory, execution, block_size=16)
    assert taken == (5 * MIB if captured else None)
    assert pools == [2], "a block of the pool, and the padding's"
