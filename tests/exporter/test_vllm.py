"""vLLM's counting, not ours: with the next token, at the first token, first lookups only."""

import pytest

from kvscope_events.events import (
    FirstToken,
    Hello,
    PoolCreated,
    PrefixLookup,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
)
from kvscope_exporter.state import Vllm
from tests.exporter.stream import batch_of, block_hash, ended, finished, step

PREEMPTED = RequestPreempted(1, 1, "recompute", "out_of_blocks", 40, 3, 1)


def vllm_after(*events: object) -> Vllm:
    vllm = Vllm()
    vllm.on_batch(batch_of(*events))  # type: ignore[arg-type]
    return vllm


def test_a_preemption_counts_with_the_victims_next_token() -> None:
    vllm = vllm_after(PREEMPTED, PREEMPTED, step(emitted=[2]))
    assert vllm.preemptions == 0
    vllm.apply(step(emitted=[1, 2]))
    assert vllm.preemptions == 2
    vllm.apply(step(emitted=[1]))
    assert vllm.preemptions == 2


def test_a_victim_aborted_while_it_waits_is_never_counted() -> None:
    assert vllm_after(PREEMPTED, ended(1, reason="abort"), step(emitted=[1])).preemptions == 0


@pytest.mark.parametrize("end_first", [True, False])
def test_a_victim_whose_next_token_is_its_last_counts_once(end_first: bool) -> None:
    end, heartbeat = ended(1, reason="length"), step(emitted=[1])
    events = (end, heartbeat) if end_first else (heartbeat, end)
    assert vllm_after(PREEMPTED, *events).preemptions == 1


def test_prompts_count_at_the_first_token_and_iterations_without_recompute() -> None:
    names = [block_hash(number) for number in range(6)]
    vllm = vllm_after(
        PoolCreated(8, 16, 0),
        SequenceAdded(1, 1, 100, 10),
        SequenceAdded(2, 2, 50, 10),
        PrefixLookup(1, 100, names, 4),
        step(prefill_tokens=36),
    )
    assert vllm.prompt_tokens == 0
    assert sum(vllm.iteration_tokens.counts) == 0  # a step without output is not an iteration
    vllm.on_batch(batch_of(FirstToken(1, 5), step(emitted=[1], first_tokens=[1])))
    assert (vllm.prompt_tokens, vllm.cached_tokens) == (100, 64)
    assert vllm.iteration_tokens.total == 36 + 1
    vllm.on_batch(batch_of(PREEMPTED, step(emitted=[2])))
    again = PrefixLookup(1, 101, names, 2, resumed=True), RequestResumed(1, 1, 40, 0, 1)
    vllm.on_batch(batch_of(*again, step(prefill_tokens=101, emitted=[1, 2])))
    assert vllm.iteration_tokens.total == 37 + 1 + 2
    assert vllm.cached_tokens == 64, "what a preempted sequence finds again is no prompt's"
    assert vllm.generation_tokens == 4


def test_each_sequence_of_a_call_is_a_request_and_the_longest_speaks_for_the_call() -> None:
    second = 1_000_000_000
    vllm = vllm_after(SequenceAdded(1, 0, 30, 10), SequenceAdded(2, 0, 30, 10))
    first = FirstToken(0, second), step(emitted=[1], first_tokens=[1])
    vllm.on_batch(batch_of(*first, time_ns=5 * second))
    ends = ended(2, request=0, output_tokens=1), ended(1, request=0), finished(0, sequences=2)
    heartbeat = step(emitted=[1, 2], first_tokens=[2])  # its first token is its last
    vllm.on_batch(batch_of(*ends, heartbeat, time_ns=7 * second))
    assert vllm.prompt_tokens == 60
    assert (sum(vllm.first_token.counts), vllm.first_token.total) == (2, 1 + 3)
    assert vllm.finished["stop"] == sum(vllm.duration.counts) == 2
    assert vllm.request_generation_tokens.total == 6
    assert (sum(vllm.request_longest_tokens.counts), vllm.request_longest_tokens.total) == (1, 5)


def test_a_finished_request_is_observed_once_with_the_times_it_reached() -> None:
    vllm = vllm_after(
        ended(1, computed_tokens=24),
        ended(2, output_tokens=1, decode_ns=0, computed_tokens=40),
        ended(3, reason="error", queue_ns=None, prefill_ns=None, decode_ns=None),
    )
    observations: dict[str, object] = {
        name: (sum(histogram.counts), pytest.approx(histogram.total))
        for name, histogram in {
            "prompt": vllm.request_prompt_tokens,
            "computed": vllm.request_computed_tokens,
            "duration": vllm.duration,
            "queue": vllm.queue,
            "decode": vllm.decode,
            "per token": vllm.time_per_output_token,
        }.items()
    }
    expected: dict[str, object] = {
        "prompt": (3, 120),
        "computed": (2, 64),
        "duration": (3, 3.0),
        "queue": (2, 0.2),
        "decode": (2, 0.4),
        "per token": (2, 0.1),  # 0.4 s over the four tokens after the first; one token: 0
    }
    assert observations == expected


def test_a_sequence_whose_client_has_left_is_in_no_figure_of_finished_ones() -> None:
    vllm = vllm_after(ended(1, reason="abort"), finished(1, reason="abort"))
    assert set(vllm.finished.values()) == {0}
    observed = [
        vllm.request_prompt_tokens,
        vllm.request_generation_tokens,
        vllm.request_computed_tokens,
        vllm.request_longest_tokens,
        vllm.time_per_output_token,
        vllm.duration,
        vllm.queue,
        vllm.prefill,
        vllm.decode,
    ]
    assert [sum(histogram.counts) for histogram in observed] == [0] * len(observed)
    assert vllm.num_pending == 1, "the time of its arrival, until its step ends"


def test_what_may_have_been_a_stop_string_counts_as_one() -> None:
    vllm = vllm_after(PREEMPTED, ended(1, reason="stop_string_or_abort"), step(emitted=[1]))
    assert vllm.finished["stop"] == sum(vllm.duration.counts) == 1
    assert vllm.preemptions == 0, "the token that it ended with came before the preemption"


def test_what_a_connector_has_loaded_is_not_computed() -> None:
    names = [block_hash(number) for number in range(6)]
    hello = Hello(1, "s", "vllm", "0.32.0", "m", "0", 1, True, [], requests_are="sequence")
    vllm = vllm_after(
        hello,
        PoolCreated(8, 16, 0),
        SequenceAdded(1, 1, 100, 10),
        PrefixLookup(1, 100, names, 2, False, 48),
        RequestScheduled(1, 5, 80),  # 32 tokens found, 48 loaded
        FirstToken(1, 5),
        step(emitted=[1], first_tokens=[1]),
    )
    assert (vllm.iteration_tokens.total, vllm.cached_tokens) == (20 + 1, 80)
    assert vllm.loaded_tokens == 48


def test_requests_that_a_gap_hides_are_skipped_not_guessed() -> None:
    vllm = vllm_after(SequenceAdded(1, 1, 100, 10), PREEMPTED)
    vllm.on_gap()
    vllm.on_batch(batch_of(FirstToken(1, 5), step(emitted=[1], first_tokens=[1])))
    assert (vllm.prompt_tokens, vllm.preemptions, vllm.generation_tokens) == (0, 0, 1)
