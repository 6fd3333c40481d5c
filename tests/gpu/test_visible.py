"""CUDA's rules for CUDA_VISIBLE_DEVICES, on lists of GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.machine.gpu.sample import Identity
from kvscope_exporter.machine.gpu.visible import DEVICE_ORDER, VISIBLE_DEVICES, Visible, visible

GPUS = 8
ALL = tuple(range(GPUS))
UUID = "GPU-{:08d}-2222-3333-4444-555555555555"
INSTANCE = "MIG-{:08d}-0000-0000-0000-000000000001"
numbers = st.lists(st.integers(0, GPUS - 1), unique=True)


def host(*names: str | None) -> list[Identity]:
    return [Identity(index=n, uuid=UUID.format(n), name=name) for n, name in enumerate(names)]


EIGHT = host(*["NVIDIA H200"] * GPUS)
MIXED = host(*["NVIDIA L40S"] * 4, *["NVIDIA H200"] * 4)


def seen(
    text: str,
    gpus: list[Identity] = EIGHT,
    mig: dict[str, int] | None = None,
    order: str | None = None,
) -> Visible:
    environment = {VISIBLE_DEVICES: text} | ({DEVICE_ORDER: order} if order else {})
    return visible(environment, gpus, mig or {})


def test_without_the_variable_all_are_visible() -> None:
    assert visible({}, EIGHT, {}) == visible({}, MIXED, {}) == Visible(ALL)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("3", (3,)),
        ("2,1", (1, 2)),
        ("0,2,-1,1", (0, 2)),
        ("0,8,1", (0,)),
        ("0,first,1", (0,)),
        ("5,,1", (5,)),
        ("-1", ()),
        ("", ()),
        ("none", ()),
        ("NoDevFiles", ()),
        ("99999999999999999999", ()),
        (" 1, 2 ,\t4", (1, 2, 4)),
        ("1st,2nd", (1, 2)),
        ("+6", (6,)),
        ("1,2,1", ()),
        ("0,1,2,3,4,5,6,7", ALL),
        (UUID.format(3), (3,)),
        (f"{UUID.format(7)},{UUID.format(2)}", (2, 7)),
        ("GPU-00000005", (5,)),
        ("GPU-0000000", ()),
        (f"{UUID.format(4)},GPU-0000000,{UUID.format(1)}", (4,)),
        (f"{UUID.format(4)},GPU-ffff,{UUID.format(1)}", (4,)),
        (f"{UUID.format(4)},GPU-00000004", ()),
        (f"{UUID.format(4)},", (4,)),
        (f"{UUID.format(4)},1", (4,)),
        (f"1,{UUID.format(4)}", (1,)),
    ],
)
def test_a_list_ends_at_its_first_entry_that_is_not_a_gpu(
    text: str, indices: tuple[int, ...]
) -> None:
    assert seen(text).indices == indices


@pytest.mark.parametrize("text", ["3", "0,2,-1", UUID.format(3), "", "-1"])
def test_hidden_gpus_are_reported(text: str) -> None:
    found = seen(text)
    told = f"={text}" if text else " is empty"
    assert found.remark == f"watching {len(found.indices)} of 8 GPUs: CUDA_VISIBLE_DEVICES{told}"


def test_a_part_of_a_uuid_suffices_on_a_host_of_one() -> None:
    assert seen("GPU-", EIGHT[:1]) == seen("GPU-,", EIGHT[:1]) == Visible((0,))


def test_numbers_on_a_host_of_several_models_need_the_order_of_the_bus() -> None:
    for order in (None, "FASTEST_FIRST"):
        found = seen("3", MIXED, order=order)
        assert found.indices == ALL
        assert found.remark is not None
        assert "CUDA_VISIBLE_DEVICES=3; " in found.remark
        assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID" in found.remark
    assert seen("3", MIXED, order="PCI_BUS_ID").indices == (3,)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("-1", ()),
        ("", ()),
        ("8", ()),
        ("7,6,5,4,3,2,1,0", ALL),
        (UUID.format(3), (3,)),
    ],
)
def test_no_order_matters_to_uuids_to_none_and_to_all(text: str, indices: tuple[int, ...]) -> None:
    found = seen(text, MIXED)
    assert found.indices == indices
    assert "PCI_BUS_ID" not in (found.remark or "")


def test_a_gpu_that_was_lost_before_it_said_its_model_makes_no_host_mixed() -> None:
    gpus = host("NVIDIA H200", None, "NVIDIA H200")
    assert seen("2", gpus).indices == (2,)


def test_a_gpu_lost_before_its_uuid_was_read_may_be_the_unmatched_one() -> None:
    lost = [*EIGHT[:7], Identity(index=7, uuid="")]
    assert seen(UUID.format(7), lost).indices == (7,)
    assert seen(UUID.format(6), lost).indices == (6,)
    assert seen(f"{UUID.format(6)},6", lost).indices == (6,)
    lost[6] = Identity(index=6, uuid="")
    assert seen(UUID.format(7), lost).indices == ()


@pytest.mark.parametrize(
    "text",
    [
        INSTANCE.format(2),
        "MIG-00000002",
        f"{INSTANCE.format(2)},{INSTANCE.format(1)}",
        f"MIG-{UUID.format(5)}/1/0",
        "MIG-GPU-00000005/1/0",
    ],
)
def test_an_instance_stands_for_its_gpu_and_is_the_only_one(text: str) -> None:
    mig = {INSTANCE.format(1): 4, INSTANCE.format(2): 5, INSTANCE.format(3): 5}
    for gpus in (EIGHT, MIXED):
        assert seen(text, gpus, mig).indices == (5,)


@pytest.mark.parametrize("text", [INSTANCE.format(9), "MIG-"])
def test_an_instance_of_nobody_hides_nothing_and_is_told(text: str) -> None:
    found = seen(text, mig={INSTANCE.format(1): 4, INSTANCE.format(2): 5})
    assert found.indices == ALL
    assert found.remark is not None
    assert f"watching every GPU: CUDA_VISIBLE_DEVICES={text}; no GPU here" in found.remark


def test_an_instance_of_a_gpu_that_is_not_there_is_none() -> None:
    assert seen("MIG-GPU-ffff/1/0").indices == ()


@given(numbers, st.sampled_from(["-1", "8", "", "x", "-"]), numbers)
def test_nothing_after_an_invalid_entry_counts(
    before: list[int], invalid: str, after: list[int]
) -> None:
    for names in (str, UUID.format):
        entries = [*map(names, before), invalid, *map(names, after)]
        if before or names is str:
            assert seen(",".join(entries)).indices == tuple(sorted(before))


@given(st.text() | st.text("0123456789,-+ GPUMIabcdef/"), st.sampled_from([EIGHT, MIXED]))
def test_whatever_it_says_gives_gpus_of_this_host_and_a_remark_where_some_are_hidden(
    text: str, gpus: list[Identity]
) -> None:
    found = seen(text, gpus)
    assert list(found.indices) == sorted({*found.indices} & {*ALL})
    assert len(found.indices) == GPUS or found.remark is not None
