"""Proposals to a fleet: the most that each could find, and its price."""

from typing import Any

import pytest

from kvscope_exporter.fleet.proposals import Proposal, proposals
from kvscope_exporter.state.fleet import Steps

ROUND_ROBIN = Steps(own=80, best=250, anywhere=250, seen=366, asked=1000)
KV_AWARE = Steps(own=260, best=263, anywhere=263, seen=366, asked=1000)
TIERS = [(256, 190), (512, 300), (1024, 360), (2048, 366)]


def made(steps: Steps, **other: Any) -> list[Proposal]:
    known: dict[str, Any] = {
        "tiers": TIERS,
        "enough_blocks": 1024,
        "block_tokens": 16,
        "block_bytes": 2**21,
        "pool_blocks": 512,
        "replicas": 8,
        "seconds": 100.0,
    }
    return proposals(steps, **known | other)


def test_behind_round_robin_a_tier_and_a_router_are_proposed_with_their_prices() -> None:
    tier, router = made(ROUND_ROBIN)
    assert (tier.kind, router.kind) == ("shared_tier", "router")
    assert (tier.gained_blocks, router.gained_blocks) == (280, 170)
    assert (tier.tier_blocks, tier.price_bytes) == (1024, 2 * 2**30)
    assert router.price_bytes is None
    assert router.saved_tokens_per_second == pytest.approx(170 * 16 / 100)
    assert "up to 17.0%" in router.text
    assert "27 prompt tokens a second" in router.text
    assert tier.text.startswith("A shared tier of 2.0 GiB finds up to 28.0% more")
    assert "2.0 times all pools" in tier.price


def test_a_router_that_knows_the_caches_is_not_proposed_again() -> None:
    assert [proposal.kind for proposal in made(KV_AWARE)] == ["shared_tier"]


def test_a_single_replica_needs_no_router() -> None:
    assert [proposal.kind for proposal in made(ROUND_ROBIN, replicas=1)] == ["shared_tier"]


def test_larger_replicas_come_last_where_no_tier_is_enough() -> None:
    (proposal,) = made(KV_AWARE, enough_blocks=None)
    assert proposal.kind == "larger_replicas"
    assert proposal.gained_blocks == 103
    assert "restart of all 8" in proposal.price


def test_bytes_that_are_not_known_are_no_price() -> None:
    tier, _ = made(ROUND_ROBIN, block_bytes=None)
    assert tier.price_bytes is None
    assert "1,024 blocks" in tier.text


@pytest.mark.parametrize(
    "steps",
    [Steps(), Steps(own=360, best=363, anywhere=363, seen=366, asked=1000)],
    ids=["nothing asked", "nothing lost"],
)
def test_nothing_is_proposed_that_is_not_worth_it(steps: Steps) -> None:
    assert made(steps) == []
