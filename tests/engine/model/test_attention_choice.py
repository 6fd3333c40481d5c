"""The choice of a model's attention backend, and the errors if it cannot run."""

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from kvscope_engine.config import AttentionName
from kvscope_engine.model.attention import choice
from kvscope_engine.model.attention.choice import TORCH, choose_attention
from kvscope_engine.model.attention.cpu import compiler
from kvscope_engine.model.attention.cpu.backend import CpuAttention

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there; nothing is compiled."""
    monkeypatch.setattr(compiler, "_COMPILER", sys.executable)


@pytest.fixture
def no_c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_COMPILER", "no-such-compiler")


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A Triton that is installed, whose kernels are not run, and a device for it."""
    installed = SimpleNamespace(knobs=SimpleNamespace(runtime=SimpleNamespace(interpret=False)))
    kernels = SimpleNamespace(triton_attention=object(), static_attention=object())
    monkeypatch.setitem(sys.modules, "triton", installed)
    monkeypatch.setitem(sys.modules, "kvscope_engine.model.attention.triton.backend", kernels)
    monkeypatch.setattr(choice, "find_spec", lambda name: object())
    monkeypatch.setattr(choice, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return kernels


@pytest.mark.usefixtures("c_compiler")
@pytest.mark.parametrize("wanted", ["auto", "cpu"])
def test_a_cpu_with_a_compiler_has_the_c_kernel(wanted: AttentionName) -> None:
    assert choose_attention(wanted, CPU) == ("cpu", CpuAttention, None)
    assert choose_attention("torch", CPU) is TORCH


@pytest.mark.usefixtures("no_c_compiler")
def test_a_cpu_without_a_compiler_has_plain_torch_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="kvscope_engine.model.attention.choice"):
        assert choose_attention("auto", CPU) is TORCH
    assert caplog.messages == [
        "attention is computed in plain torch: there is no C compiler (no-such-compiler)"
    ]
    with pytest.raises(ValueError, match=r"cpu: there is no C compiler \(no-such-compiler\)"):
        choose_attention("cpu", CPU)


@pytest.mark.usefixtures("c_compiler")
def test_fp8_on_a_cpu_is_read_by_plain_torch() -> None:
    assert choose_attention("auto", CPU, fp8=True) is TORCH
    with pytest.raises(ValueError, match="cpu: the C kernel reads no fp8 KV"):
        choose_attention("cpu", CPU, fp8=True)


@pytest.mark.usefixtures("c_compiler")
def test_the_c_kernel_on_a_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="cpu: the C kernel runs on a CPU, and the model is on a"):
        choose_attention("cpu", CUDA)


@pytest.mark.parametrize("wanted", ["auto", "triton"])
def test_a_gpu_has_triton(triton: SimpleNamespace, wanted: AttentionName) -> None:
    chosen = choose_attention(wanted, CUDA, fp8=True)
    assert chosen == ("triton", triton.triton_attention, triton.static_attention)
    assert choose_attention("torch", CUDA) is TORCH


def test_triton_on_a_cpu_is_refused(triton: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="triton: its kernels need a CUDA device, and the model"):
        choose_attention("triton", CPU)


def test_a_missing_triton_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"triton: Triton is not installed \(pip install triton"):
        choose_attention("triton", CUDA)
    with caplog.at_level(logging.WARNING, logger="kvscope_engine.model.attention.choice"):
        assert choose_attention("auto", CUDA) is TORCH
    assert caplog.messages == [
        "attention is computed in plain torch: Triton is not installed (pip install triton; Linux "
        "only)"
    ]


@pytest.mark.usefixtures("triton")
def test_triton_without_a_compiler_for_what_launches_kernels_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would fail in the first step."""
    monkeypatch.setattr(choice, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    assert choose_attention("auto", CUDA) is TORCH
    with pytest.raises(ValueError, match="triton: Triton needs a C compiler"):
        choose_attention("triton", CUDA)


def test_a_broken_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "triton", None)  # what makes `import triton` fail
    with pytest.raises(ValueError, match=r"triton: Triton cannot be imported \(import of triton"):
        choose_attention("triton", CUDA)


@pytest.mark.parametrize(
    ("capability", "fp8", "message"),
    [
        ((7, 5), False, "need compute capability 8.0, this device has 7.5"),
        ((8, 6), True, "fp8 KV from compute capability 8.9 on, this device has 8.6"),
    ],
)
def test_an_old_gpu_is_refused(
    triton: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    fp8: bool,
    message: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    with pytest.raises(ValueError, match=message):
        choose_attention("triton", CUDA, fp8=fp8)
    assert choose_attention("auto", CUDA, fp8=fp8) is TORCH


def test_without_fp8_an_ampere_gpu_has_triton(
    triton: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    assert choose_attention("auto", CUDA).name == "triton"
