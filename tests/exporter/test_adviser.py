"""The adviser's proposals, case by case."""

from dataclasses import replace
from typing import Any

import pytest

from kvscope_exporter.adviser.facts import HitCurve, Point, Sizing
from kvscope_exporter.adviser.pool_size import gain_of
from kvscope_exporter.adviser.rank import advise
from tests.exporter.advised import GIB, SECOND, curve, facts, needed, only, room, slot


def test_nothing_is_proposed_where_nothing_is_wrong() -> None:
    found = advise(facts(curve=curve(0.6, 0.6, least=0.1)))
    assert not found.proposals
    assert len(found.declined) == 14, "each kind says why"


def test_nothing_is_said_of_pools_whose_groups_hide_what_another_size_holds() -> None:
    """Sliding windows and states: no curve, and a sequence takes blocks of each group."""
    wanted = needed({1.4: 150 * SECOND})
    load = slot(
        need_ns=wanted,
        waiting_ns=150 * SECOND,
        preemptions={"out_of_blocks": 50},
        recomputed_tokens={"out_of_blocks": 60_000},
        unfilled_ns=150 * SECOND * 400 * 8,
    )
    found = advise(facts(curve=None, is_plain=False, load=load, max_num_seqs=8, block_size=32))
    assert not found.proposals
    said = [declined.reason for declined in found.declined]
    of_groups = [reason for reason in said if "not known for pools of several groups" in reason]
    assert len(of_groups) == 7
    assert not any("would save" in reason for reason in said)
    assert found.unknown is not None
    assert found.unknown.startswith("a larger pool, a smaller pool, another replica, fewer")


@pytest.mark.parametrize(
    ("waiting", "exact_up_to", "bound"),
    [(0, None, "about"), (1, None, "at most"), (0, 1000, "at least"), (1, 1000, "about")],
)
def test_no_gain_is_said_to_be_exact(waiting: int, exact_up_to: int | None, bound: str) -> None:
    """A larger pool admits those that wait earlier, and equal beginnings are computed twice."""
    load = slot(waiting_ns=150 * SECOND * waiting)
    hits = replace(curve(0.41, 0.6), exact_up_to_blocks=exact_up_to)
    found = next(
        p for p in advise(facts(curve=hits, load=load)).proposals if p.price.pool_blocks > 0
    )
    assert found.gain.saved_is == bound
    assert f"→ {bound} " in found.text
    assert f", {bound} " in found.text


def test_hits_that_nobody_looked_up_are_no_hits_that_nothing_would_gain() -> None:
    said = [declined.reason for declined in advise(facts(curve=None)).declined]
    assert "a larger pool: not known, since no look-ups were observed" in said
    assert "another replica: not known, since no look-ups were observed" in said
    without = [d.reason for d in advise(facts(curve=None, caches_prefixes=False)).declined]
    assert any("four times this one would save 0 of 2,000 prompt tokens" in s for s in without)


def test_hits_that_a_connector_supplies_anyway_save_nothing() -> None:
    points = [Point(62, 0), Point(1000, 8_000), Point(4000, 24_000, 16_000)]
    loaded = HitCurve(points=points, queried_blocks=40_000, seconds=300, error_ratio=0.0)
    gain = gain_of(facts(curve=loaded), 4000)
    assert (gain.hit_ratio_from, gain.hit_ratio_to) == (0.2, 0.6)
    assert gain.saved_tokens_per_second == 0


def test_a_pool_that_evicts_too_early_gets_the_blocks_that_it_takes() -> None:
    found = only(facts(curve=curve(0.41, 0.6)))
    # 1,000 more blocks would cost 2 GiB; 4 GiB less the largest step and the margin leave 2.5.
    assert found.option == "num_gpu_blocks_override"
    assert found.flag == "--num-gpu-blocks-override"
    assert 2000 <= found.proposed <= 2260
    assert found.price.memory_bytes == found.price.pool_blocks * (2 << 20)
    assert found.price.headroom_left_bytes == 3 * GIB - found.price.memory_bytes
    assert found.gain.hit_ratio_from == pytest.approx(0.41)
    share = found.price.pool_blocks / 3000
    saved = share * 0.19 * 40_000 * 16 / 300
    assert found.gain.saved_tokens_per_second == pytest.approx(saved)
    assert found.confidence == "high"
    assert "headroom left" in found.text


def test_hits_that_are_a_lower_bound_are_said_to_be_one() -> None:
    late = replace(curve(0.41, 0.6), exact_up_to_blocks=1000)
    found = only(facts(curve=late))
    assert (found.confidence, "at least these" in found.because) == ("medium", True)


def test_a_share_of_the_memory_is_raised_in_hundredths() -> None:
    sizing = Sizing(total_bytes=24 * GIB, utilization=0.85, in_use_at_start_bytes=GIB // 2)
    found = only(
        facts(
            pool_option="gpu_memory_utilization",
            sizing=sizing,
            rooms=[room(free_bytes=3 * GIB)],
            curve=curve(0.41, 0.6),
        )
    )
    assert (found.option, found.current, found.proposed) == ("gpu_memory_utilization", 0.85, 0.91)
    assert found.price.pool_blocks == int(24 * GIB * 0.06 / (2 << 20))
    assert found.text.startswith(
        "--gpu-memory-utilization 0.85 → 0.91: +737 blocks (1.4 GiB), hits 41 → about 46 %"
    )


def test_a_server_that_would_not_start_is_not_proposed() -> None:
    sizing = Sizing(total_bytes=24 * GIB, utilization=0.85, in_use_at_start_bytes=3 * GIB)
    found = advise(
        facts(pool_option="gpu_memory_utilization", sizing=sizing, curve=curve(0.41, 0.6))
    )
    assert all(p.proposed <= 1 - 3 / 24 for p in found.proposals if p.option != "replicas")


def test_preemptions_are_an_argument_as_well() -> None:
    load = slot(
        preemptions={"out_of_blocks": 90},
        recomputed_tokens={"out_of_blocks": 60_000},
        need_ns=needed({0.6: 100 * SECOND, 1.2: 50 * SECOND}),
        most_active=1000,
    )
    found = only(facts(load=load))
    assert found.option == "num_gpu_blocks_override"
    assert found.gain.recomputed_tokens_per_second_from == 200
    assert found.gain.recomputed_tokens_per_second_to == pytest.approx(0, abs=20)
    assert found.confidence == "medium", "they are estimated"


def test_a_watermark_is_proposed_without_a_number_where_sequences_outgrow_the_pool() -> None:
    preempting: dict[str, Any] = {
        "has_watermark": True,
        "load": slot(
            preemptions={"out_of_blocks": 90}, recomputed_tokens={"out_of_blocks": 60_000}
        ),
    }
    found = {p.option: p for p in advise(facts(**preempting)).proposals}["watermark"]
    assert found.text == "set --watermark 0.05: fewer recomputed tokens (200 a second now)"
    assert found.gain.recomputed_tokens_per_second_to is None, "not known"
    assert "fewer than 50 blocks" in found.price.text
    several = advise(facts(is_plain=False, **preempting)).proposals
    assert [p.option for p in several].count("watermark") == 1, "it does not go by blocks"
    for changes in ({"has_watermark": False}, {"load": slot()}):
        made = advise(facts(**{**preempting, **changes}))
        assert "watermark" not in {p.option for p in made.proposals}
        assert any(one.reason.startswith("a watermark: ") for one in made.declined)


def test_keeping_every_window_is_proposed_where_a_simulated_pool_finds_more_with_it() -> None:
    found = curve(0.3, 0.4)
    several: dict[str, Any] = {
        "is_plain": False,
        "retention": 0,
        "alignment": 16,
        "rooms": [],
        "curve": replace(found, retaining_hit_blocks=20_000),
    }
    proposal = only(facts(**several))
    assert proposal.text == (
        "--prefix-cache-retention-interval 0 → 16: hits 30 → about 50 %, about 427 prompt "
        "tokens a second saved"
    )
    assert proposal.gain.saved_tokens_per_second == pytest.approx(8000 * 16 / 300)
    for changes in (
        {"retention": None},  # all are kept
        {"retention": 16},
        {"alignment": None},
        {"curve": found},  # not simulated
        {"curve": replace(found, retaining_hit_blocks=11_000)},  # it would find less
        {"is_plain": True},
    ):
        made = advise(facts(**{**several, **changes}))
        assert proposal.option not in {p.option for p in made.proposals}, changes
        assert any(one.reason.startswith("keeping more windows") for one in made.declined)


def test_an_overloaded_engine_is_not_promised_fewer_preemptions() -> None:
    load = slot(
        preemptions={"out_of_blocks": 90},
        recomputed_tokens={"out_of_blocks": 60_000},
        need_ns=needed({1.9: 150 * SECOND}),
        waiting_ns=150 * SECOND * 100,
    )
    gain = gain_of(facts(load=load), 4000)
    assert gain.recomputed_tokens_per_second_to is None, "not known"
    proposals = advise(facts(load=load, curve=curve(0.41, 0.6))).proposals
    (found,) = [p for p in proposals if p.option == "num_gpu_blocks_override"]
    assert found.confidence == "medium"
    assert "instead of saving tokens" in found.because


def test_a_pool_that_is_never_needed_gives_memory_back() -> None:
    found = only(facts(load=slot(need_ns=needed({0.3: 150 * SECOND}))))
    assert found.option == "num_gpu_blocks_override"
    assert 0.3 * 1.25 * 1000 <= found.proposed <= 500
    assert found.gain.freed_bytes == (1000 - found.proposed) * (2 << 20)
    assert found.why.startswith("the pool could be 56 % smaller without losing a hit")


def test_a_step_that_does_not_fit_is_made_smaller() -> None:
    load = slot(out_of_memory=12, largest_failure=2048, largest_step=1000)
    found = only(facts(load=load, largest_step=1000, rooms=[room(free_bytes=GIB)]))
    assert found.option == "max_num_batched_tokens"
    assert found.current is None, "the budget was cut by the errors"
    # 1,000 tokens take 1 GiB; 2 % of the card stay free.
    assert found.proposed == 512
    assert found.gain.errors_per_second_to == 0
    assert found.price.headroom_left_bytes is not None
    assert found.price.headroom_left_bytes >= 0.02 * 24 * GIB


def test_a_measured_pool_leaves_room_for_its_steps() -> None:
    """Smaller steps would make it larger by what they spare."""
    sizing = Sizing(total_bytes=24 * GIB, utilization=0.9, in_use_at_start_bytes=0)
    load = slot(out_of_memory=3, largest_failure=2048, largest_step=2048)
    short = facts(
        load=load,
        sizing=sizing,
        pool_option="gpu_memory_utilization",
        rooms=[room(free_bytes=GIB // 2)],
        usable_blocks=4000,
        longest_blocks=64,
    )
    found = only(short)
    # Half a GiB is missing, and the margin: 0.98 GiB, 0.041 of the card.
    assert (found.option, found.current, found.proposed) == ("gpu_memory_utilization", 0.9, 0.85)
    assert found.gain.errors_per_second_from == 0.01
    assert found.price.headroom_left_bytes is not None
    assert found.price.headroom_left_bytes >= 0.02 * 24 * GIB
    assert "max_num_batched_tokens" not in {p.option for p in advise(short).proposals}


def test_more_sequences_run_where_they_wait_beside_a_free_pool() -> None:
    load = slot(active_ns=150 * SECOND * 160)
    found = advise(facts(load=load, max_num_seqs=8, waiting_for_sequences=6.0)).proposals
    (more,) = [p for p in found if p.option == "max_num_seqs"]
    assert (more.current, more.proposed) == (8, 16)
    assert "8 → 16: fewer waiting sequences (6.0 on average)," in more.text, "none is promised"


MS = 10**6


def test_a_step_gets_more_tokens_only_where_that_computes_prompts_faster() -> None:
    """A step takes 20 ms, and 10 µs or 1 ms for each token of a prompt."""
    hits = curve(0.6, 0.6, least=0.1)
    waiting = {"step_budget": 512, "waiting_for_tokens": 3.0, "curve": hits}
    found = only(facts(**waiting, step_fit=(20 * MS, 10_000)))
    assert (found.option, found.current, found.proposed) == ("max_num_batched_tokens", 512, 1024)
    assert found.price.text == "a full step takes 30 ms, not 25 ms"
    assert "1.7 times as fast" in found.why
    for fit in ((20 * MS, 1 * MS), (600 * MS, 10_000), None):
        made = advise(facts(**waiting, step_fit=fit))
        assert not made.proposals
        assert any(d.reason.startswith("more tokens in a step: ") for d in made.declined)
    full = advise(facts(**waiting, step_fit=(20 * MS, 10_000), rooms=[room(free_bytes=GIB)]))
    assert not full.proposals
    assert any("no memory is known" in declined.reason for declined in full.declined)


def test_chunks_that_make_tokens_late_get_smaller() -> None:
    hits = curve(0.6, 0.6, least=0.1)
    late = {"step_budget": 8192, "step_fit": (20 * MS, 200_000), "curve": hits}
    found = only(facts(**late, held_up=0.4))
    assert (found.current, found.proposed) == (8192, 1088)
    assert "full steps take 1.66 s → about 0.24 s" in found.text
    assert not advise(facts(**late, held_up=0.01)).proposals
    many = only(facts(**late, held_up=0.4, max_num_seqs=2048))
    assert many.proposed == 2048, "every sequence has a token of a step"


def test_fewer_sequences_are_proposed_where_the_memory_has_no_room() -> None:
    load = slot(
        preemptions={"out_of_blocks": 90},
        recomputed_tokens={"out_of_blocks": 60_000},
        running_ns=150 * SECOND * 11,
        waiting_ns=150 * SECOND * 6,
        active_ns=150 * SECOND * 980,
        need_ns=needed({1.05: 150 * SECOND}),
        most_active=1000,
    )
    found = advise(facts(load=load, rooms=[room(free_bytes=GIB)])).proposals
    assert [p.option for p in found][:1] == ["max_num_seqs"]
    assert found[0].proposed == 12


def test_another_replica_where_no_pool_that_fits_is_enough() -> None:
    found = advise(facts(curve=curve(0.2, 0.9, least=0), rooms=[room(free_bytes=GIB)])).proposals
    assert [p.option for p in found] == ["replicas"]
    assert (found[0].current, found[0].proposed) == (1, 2)


def test_blocks_that_stay_empty_are_made_smaller() -> None:
    load = slot(unfilled_ns=150 * SECOND * 400 * 128 // 3)
    found = advise(facts(load=load, block_size=128, curve=curve(0.4, 0.9))).proposals
    assert "block_size" in {p.option for p in found}


def test_without_a_known_room_nothing_grows() -> None:
    found = advise(facts(curve=curve(0.2, 0.9, least=0), rooms=()))
    assert not found.proposals
    assert any("not known" in declined.reason for declined in found.declined)
