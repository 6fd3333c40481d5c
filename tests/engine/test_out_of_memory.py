"""A step that runs out of device memory costs one request a wait, and no request a token."""

import logging

import pytest
import torch

from kvscope_engine.model.torch_errors import device_out_of_memory
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError, OutOfMemoryLog
from kvscope_engine.step_budget import FIRST_RETRY_STEPS, MAX_RETRY_STEPS, RAISE_STEPS
from kvscope_events.events import RequestPreempted
from tests.support.accounting import Accounting, continuation


def fail_once_over(engine: Accounting, tokens: int) -> int:
    """Schedule a step; if it has more tokens than the device stands, shrink. Steps that failed."""
    failures = 0
    while True:
        plan = engine.scheduler.schedule()
        assert plan.rows, "work, but nothing was scheduled"
        if plan.num_tokens <= tokens:
            sampled = engine.runner.execute(plan)
            engine.scheduler.update(plan, [None if s is None else s.token_id for s in sampled])
            engine.flush()
            return failures
        failures += 1
        assert engine.scheduler.shrink(plan) is not None
        engine.flush()
        engine.check()


def test_every_request_gets_its_tokens_on_a_device_that_stands_few() -> None:
    engine = Accounting(num_blocks=24, max_num_batched_tokens=32)
    sequences = [engine.add([i] * 12, 12) for i in range(4)]
    failures = 0
    while engine.live:
        failures += fail_once_over(engine, tokens=3)
        engine.check()
    assert failures > 3
    for sequence in sequences:
        assert sequence.tokens[sequence.prompt_length :] == continuation(sequence.prompt, 12)
    causes = [e.cause for e in engine.events if isinstance(e, RequestPreempted)]
    assert "out_of_memory" in causes


def test_the_newest_request_makes_room() -> None:
    engine = Accounting(num_blocks=24, max_num_batched_tokens=32)
    requests = [engine.add([i] * 4, 12) for i in range(3)]
    engine.step()
    plan = engine.scheduler.schedule()
    assert engine.scheduler.shrink(plan) == plan.num_tokens // 2
    assert [r.num_preemptions for r in requests] == [0, 0, 1]


def test_one_request_with_one_token_cannot_be_made_smaller() -> None:
    engine = Accounting()
    engine.add([1, 2, 3], 5)
    plan = engine.scheduler.schedule()
    assert engine.scheduler.shrink(plan) == 1
    plan = engine.scheduler.schedule()
    assert plan.num_tokens == 1
    assert engine.scheduler.shrink(plan) is None


def test_a_prompt_that_may_not_be_split_cannot_be_made_smaller() -> None:
    engine = Accounting(enable_chunked_prefill=False, max_num_batched_tokens=40)
    engine.add([1] * 20, 5)
    assert engine.scheduler.shrink(engine.scheduler.schedule()) is None


def test_a_whole_prompt_runs_alone_though_the_budget_was_cut() -> None:
    engine = Accounting(enable_chunked_prefill=False, max_num_batched_tokens=40, num_blocks=20)
    requests = [engine.add([i] * 15, 3) for i in range(2)]
    plan = engine.scheduler.schedule()
    assert plan.num_tokens == 30
    assert engine.scheduler.shrink(plan) == 15
    engine.run()
    assert [len(r.tokens) for r in requests] == [18, 18]


def test_the_budget_grows_back() -> None:
    engine = Accounting(num_blocks=40, max_model_len=160, max_num_batched_tokens=16)
    engine.add([1] * 16, 140)
    assert engine.scheduler.shrink(engine.scheduler.schedule()) == 8
    for _ in range(FIRST_RETRY_STEPS + MAX_RETRY_STEPS + RAISE_STEPS):
        engine.step()
    late = engine.add([2] * 15, 1)
    engine.step()
    assert late.num_computed_tokens == 15 or late.num_output_tokens == 1


def test_torch_tells_its_out_of_memory_errors_apart() -> None:
    with pytest.raises(DeviceOutOfMemoryError) as caught, device_out_of_memory():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has")
    assert caught.value.wanted_bytes == 2_684_354_560
    with pytest.raises(DeviceOutOfMemoryError) as caught, device_out_of_memory():
        torch.empty(2**60, dtype=torch.uint8)
    assert caught.value.wanted_bytes == 2**60
    with pytest.raises(RuntimeError, match="shape"), device_out_of_memory():
        torch.zeros(2) @ torch.zeros(3, 3)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
    ],
)
def test_a_library_of_cuda_that_is_out_of_memory_is_out_of_memory(message: str) -> None:
    with pytest.raises(DeviceOutOfMemoryError) as caught, device_out_of_memory():
        raise RuntimeError(message)
    assert caught.value.wanted_bytes is None


@pytest.mark.parametrize(
    ("free", "expected"), [(2**26, DeviceOutOfMemoryError), (2**33, RuntimeError)]
)
def test_attention_of_cudnn_that_fails_where_memory_is_scarce_is_out_of_memory(
    free: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on an H200 with 128 MiB free; it names neither memory nor an amount."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (free, 2**37))
    with pytest.raises(expected) as caught, device_out_of_memory():
        raise RuntimeError(
            "Expected mha_graph.execute(handle, variant_pack, workspace_ptr.get()).is_good() to be "
            "true, but got false."
        )
    assert type(caught.value) is expected


def test_a_thousand_failed_steps_make_one_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    log = OutOfMemoryLog()
    with caplog.at_level(logging.WARNING, logger="kvscope_engine.out_of_memory"):
        log.log(DeviceOutOfMemoryError(512), 64)
        for _ in range(1000):
            log.log(DeviceOutOfMemoryError(None), None)
    assert caplog.messages == [
        "out of device memory: 512 bytes wanted; next step: at most 64 tokens"
    ]


def test_the_log_tells_how_much_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now_ns = 100
    log = OutOfMemoryLog(lambda: now_ns)
    for _ in range(3):
        log.log(DeviceOutOfMemoryError(None), 8)
    now_ns += 1_000_000_000
    with caplog.at_level(logging.WARNING, logger="kvscope_engine.out_of_memory"):
        log.log(DeviceOutOfMemoryError(None), None)
    assert caplog.messages[-1] == (
        "out of device memory; the smallest step does not fit, its request ends with an error "
        "(2 more since the last line)"
    )
