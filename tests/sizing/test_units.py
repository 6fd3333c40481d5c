"""Amounts of memory, dtypes and GPUs by name: strict in, readable out."""

import pytest

from kvscope.plan.gpus import GPUS, find_gpu
from kvscope_engine.sizing import Dtype, format_bytes, parse_bytes, parse_dtype


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("141GB", 141 * 10**9),
        ("141 GiB", 141 * 2**30),
        ("139.8GiB", round(139.8 * 2**30)),
        ("512MiB", 2**29),
        ("1024", 1024),
        ("7 B", 7),
    ],
)
def test_amounts_of_memory(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["80G", "80gb", "GB", "", "-1GB", "1.5", "0", "1e9", "1,000"])
def test_nothing_is_guessed(text: str) -> None:
    with pytest.raises(ValueError, match=r"memory|unit"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (98_304, "96 KiB"), (3 * 2**29, "1.5 GiB"), (1100, "1.07 KiB"), (2**40, "1 TiB")],
)
def test_amounts_as_text(amount: int, text: str) -> None:
    assert format_bytes(amount) == text
    assert amount == 0 or format_bytes(-amount) == f"-{text}"


@pytest.mark.parametrize("name", ["H200", "h200", "NVIDIA H200"])
def test_the_h200_of_141_gb_has_what_cuda_says(name: str) -> None:
    assert find_gpu(name).datasheet_gb == 141
    assert find_gpu(name).total_bytes / 2**30 == pytest.approx(139.80, abs=0.005)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("A100", "A100-80GB"),
        ("a100 40gb", "A100-40GB"),
        ("RTX 4090", "RTX-4090"),
        ("H100", "H100-80GB"),
    ],
)
def test_gpus_by_their_usual_names(name: str, known: str) -> None:
    assert find_gpu(name).name == known


def test_an_unknown_gpu_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        find_gpu("H300")


def test_a_card_of_another_vendor_is_taken_for_none_of_these() -> None:
    with pytest.raises(ValueError, match="no GPU 'MI300X' here: There are"):
        find_gpu("MI300X")


@pytest.mark.parametrize("known", GPUS, ids=lambda known: known.name)
def test_no_gpu_has_more_than_its_datasheet_says_in_gib(known: object) -> None:
    assert isinstance(known, type(GPUS[0]))
    assert 0.85 * known.datasheet_gb < known.total_bytes / 2**30 < known.datasheet_gb


def test_dtypes_by_torchs_and_vllms_names() -> None:
    assert parse_dtype("bfloat16") is Dtype.BF16
    assert parse_dtype("fp8_e4m3") is Dtype.FP8
    with pytest.raises(ValueError, match="expected one of"):
        parse_dtype("int3")


def test_half_bytes_round_up() -> None:
    assert Dtype.INT4.nbytes(3) == 2
