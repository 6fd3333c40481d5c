"""Offloading is proposed where host memory would keep what a vLLM's pool evicts."""

from typing import Any

import pytest

from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.proposal import Proposal
from kvscope_exporter.adviser.rank import advise
from tests.exporter.advised import GIB, curve, facts, room


def evicting(**changes: Any) -> Facts:
    """A full card with a pool of 2 GiB, which four times as much would serve better; the host has
    64 GiB. 60 % of the blocks are found, and 90 % would be."""
    fields: dict[str, Any] = {
        "curve": curve(0.6, 0.9),
        "rooms": [room(free_bytes=GIB)],
        "can_offload": True,
        "host": room(name="host", total_bytes=80 * GIB, free_bytes=64 * GIB, largest_step_bytes=0),
    }
    return facts(**{**fields, **changes})


def offloading(given: Facts) -> list[Proposal]:
    return [p for p in advise(given).proposals if p.option == "kv_offloading_size"]


def declined(given: Facts) -> str:
    (reason,) = (
        one.reason for one in advise(given).declined if one.reason.startswith("offloading")
    )
    return reason


def test_a_tier_is_proposed_with_what_it_saves_and_what_it_copies() -> None:
    (found,) = offloading(evicting())
    assert (found.current, found.proposed) == (None, 7.9)  # 4,000 blocks of 2 MiB
    assert found.gain.saved_tokens_per_second == pytest.approx(0.3 * 40_000 * 16 / 300)
    assert found.text == (
        "set --kv-offloading-size 7.9: hits 60 → about 90 %, about 640 prompt tokens a second "
        "saved, headroom left 56.1 GiB"
    )
    # 640 tokens of 128 KiB; prompts are computed at 600,000 tokens in 150 s of steps.
    assert found.price.text.startswith("80.0 MiB a second are loaded")
    assert "faster than 500 MiB a second" in found.assumes[0]


def test_a_present_tier_is_enlarged_by_what_it_lacks() -> None:
    (found,) = offloading(evicting(tier_blocks=2000))
    assert found.current == pytest.approx(2000 * 2 / 1024)
    assert found.gain.saved_tokens_per_second == pytest.approx(0.2 * 40_000 * 16 / 300)
    assert found.price.memory_bytes == pytest.approx(2000 * (2 << 20), rel=0.03)  # tenths of a GiB


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"can_offload": False}, "cannot, or has another connector"),
        ({"host": None}, "is not known here"),
        ({"curve": None}, "no look-ups were observed"),
        ({"curve": curve(0.6, 0.6)}, "would save 0 of 2,000 prompt tokens a second"),
        (
            {"host": room(name="host", total_bytes=80 * GIB, free_bytes=GIB, largest_step_bytes=0)},
            "would save 0 of",
        ),
        ({"is_plain": False}, "several groups"),
    ],
)
def test_otherwise_it_says_why_not(changes: dict[str, Any], reason: str) -> None:
    given = evicting(**changes)
    assert not offloading(given)
    assert reason in declined(given)
