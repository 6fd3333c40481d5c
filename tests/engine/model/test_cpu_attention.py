"""The CPU's decode kernel: when it is used, and that every number in it is that of plain torch."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.cpu import backend, compiler, kernel
from kvscope_engine.model.attention.cpu.backend import CpuAttention
from kvscope_engine.model.attention.cpu.kernel import DecodeKernel, decode_kernel
from kvscope_engine.model.attention.torch_backend import TorchAttention
from kvscope_engine.model.kv_cache import FP8, KVCache, KVLayout, LayerShape
from kvscope_engine.model.step_batch import StepBatch
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence

PLAIN = LayerOptions(0, None, None, None)
CONTEXTS = (1, 255, 256, 257, 700, 16, 31)
"""Some of several chunks, some that end with one."""

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture
def fresh_kernels() -> Iterator[None]:
    """Kernels are made once per process; a test that hinders that must not leave its trace."""
    decode_kernel.cache_clear()
    yield
    decode_kernel.cache_clear()


class Decoding:
    """A batch of decode rows over scattered blocks of random K and V."""

    def __init__(
        self,
        *,
        block_size: int = 16,
        num_kv_heads: int = 2,
        group: int = 2,
        head_dim: int = 32,
        dtype: torch.dtype = torch.float32,
        stored: torch.dtype | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(head_dim)
        shape = LayerShape(num_kv_heads, head_dim)
        layout = KVLayout(
            layers=(shape,), block_size=block_size, dtype=stored or dtype, computed=dtype
        )
        widths = [-(-context // block_size) for context in CONTEXTS]
        self.cache = KVCache(layout, sum(widths), torch.device("cpu"))
        filled = torch.randn(self.cache.layers[0].shape, generator=generator)
        self.cache.layers[0].copy_(filled)
        free = torch.randperm(sum(widths), generator=generator).tolist()
        rows = []
        for context, width in zip(CONTEXTS, widths, strict=True):
            table = [free.pop() for _ in range(width)]
            rows.append(ScheduledSequence(_sequence(context, table), context - 1, 1))
        self.batch = StepBatch(rows, layout, torch.device("cpu"))
        # As a layer passes it: heads first, of memory that has the tokens first.
        size = (1, len(rows), num_kv_heads * group, head_dim)
        self.query = torch.randn(size, generator=generator).to(dtype).transpose(1, 2)

    def attend(self, attention: type[TorchAttention], options: LayerOptions = PLAIN) -> Tensor:
        prepared = attention(self.batch, self.cache)
        return prepared.attend(self.query, self.query, self.query, options)


def _sequence(length: int, table: list[int]) -> Sequence:
    return Sequence(
        sequence_id=0,
        request_id=0,
        tokens=[0] * length,
        prompt_length=length,
        sampling=SamplingParams(max_tokens=1),
        hasher=PrefixHasher(b"", 16),
        block_table=table,
    )


@needs_compiler
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("window", [None, 1, 300])
@pytest.mark.parametrize(
    ("block_size", "num_kv_heads", "group", "head_dim"),
    [(16, 2, 2, 32), (16, 1, 8, 128), (32, 2, 4, 80), (7, 3, 1, 20), (512, 1, 3, 64)],
)
def test_the_kernel_equals_plain_torch(
    block_size: int,
    num_kv_heads: int,
    group: int,
    head_dim: int,
    window: int | None,
    softcap: float | None,
) -> None:
    decoding = Decoding(
        block_size=block_size, num_kv_heads=num_kv_heads, group=group, head_dim=head_dim
    )
    options = LayerOptions(0, window, None, softcap)
    assert isinstance(decode_kernel(head_dim, group), DecodeKernel)
    torch.testing.assert_close(
        decoding.attend(CpuAttention, options),
        decoding.attend(TorchAttention, options),
        atol=2e-6,
        rtol=2e-5,
    )


@needs_compiler
@pytest.mark.parametrize("softcap", [None, 30.0])
def test_scores_far_apart_and_far_from_zero(softcap: float | None) -> None:
    decoding = Decoding()
    options = LayerOptions(0, None, 100.0, softcap)
    torch.testing.assert_close(
        decoding.attend(CpuAttention, options),
        decoding.attend(TorchAttention, options),
        atol=1e-3,  # rounding of scores of some thousands
        rtol=1e-3,
    )


@needs_compiler
def test_what_is_not_a_number_stays_so() -> None:
    decoding = Decoding()
    decoding.query[0, 1, 2] = float("nan")
    output = decoding.attend(CpuAttention)
    assert output[2, 1].isnan().all()
    output[2, 1] = 0
    assert output.isfinite().all()


@needs_compiler
def test_a_row_is_the_same_to_the_bit_on_more_threads() -> None:
    decoding = Decoding()
    alone = decoding.attend(CpuAttention)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        shared = decoding.attend(CpuAttention)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(alone, shared)


@needs_compiler
@pytest.mark.parametrize("block", [-1, 10_000])
def test_a_block_outside_the_cache_is_not_read(block: int) -> None:
    decoding = Decoding()
    decoding.batch.decodes[0].block_table[-1] = block
    with pytest.raises(AssertionError):
        decoding.attend(CpuAttention)


@needs_compiler
def test_a_table_that_does_not_cover_its_tokens_is_not_read() -> None:
    decoding = Decoding()
    decoding.batch.decodes[0].block_table.pop()
    with pytest.raises(AssertionError):
        decoding.attend(CpuAttention)


@pytest.mark.parametrize(
    ("dtype", "stored"), [(torch.bfloat16, None), (torch.float16, None), (torch.float32, FP8)]
)
def test_what_is_not_float32_goes_the_way_of_plain_torch(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, stored: torch.dtype | None
) -> None:
    def refuse(head_dim: int, group: int) -> None:
        raise AssertionError("a kernel for float32 was asked for")

    monkeypatch.setattr(backend, "decode_kernel", refuse)
    decoding = Decoding(dtype=dtype, stored=stored)
    assert torch.equal(decoding.attend(CpuAttention), decoding.attend(TorchAttention))


@pytest.mark.usefixtures("fresh_kernels")
def test_without_a_compiler_it_goes_the_way_of_plain_torch_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", kernel.logger.name)
    monkeypatch.setattr(compiler, "_COMPILER", "no-such-compiler")
    decoding = Decoding()
    assert torch.equal(decoding.attend(CpuAttention), decoding.attend(TorchAttention))
    assert caplog.messages == [
        "decoding runs on plain torch, which is slower: there is no C compiler (no-such-compiler)"
    ]


@needs_compiler
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("not C at all", "the C compiler failed"),
        ("void missing(void); void paged_decode(void) { missing(); }", "does not load"),
        ("void other(void) {}", "has no paged_decode"),
    ],
)
@pytest.mark.usefixtures("fresh_kernels")
def test_a_kernel_that_cannot_be_made_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    source: str,
    problem: str,
) -> None:
    caplog.set_level("INFO", kernel.logger.name)
    broken = tmp_path / "broken.c"
    broken.write_text(source)
    monkeypatch.setattr(kernel, "_SOURCE", broken)
    decoding = Decoding()
    assert torch.equal(decoding.attend(CpuAttention), decoding.attend(TorchAttention))
    assert problem in caplog.text
