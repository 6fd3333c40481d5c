"""Incidents on a simulated clock: what is laid in, and the cause that must be named first.

USED ones were there while the search was written. HELD_OUT ones were written before they were run
for the first time; docs/studies/why.md has how they came out then.
ASKED_LATE ones are over when they are asked about; all but the first were held out.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain

from kvscope_exporter.answers.diagnosis.question import WhyAnswer
from kvscope_exporter.catalogue.incident import Kind
from tests.support.paced import Call
from tests.why.stage import GIB, Stage, chat, play

HW_THERMAL = 0x40
Incident = Callable[[], WhyAnswer]


def _quiet(seconds: float = 300, **changes: object) -> Stage:
    """An engine after some minutes of its usual load."""
    stage = Stage(**changes)  # type: ignore[arg-type]
    answer = play(stage, chat(1, seconds), seconds)
    assert answer.chain == [], answer.sentence
    return stage


def a_neighbour_takes_memory() -> WhyAnswer:
    stage = _quiet()
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    return play(stage, chat(2, 60), 60)


def more_requests() -> WhyAnswer:
    return play(_quiet(), chat(2, 60, rate=12), 60)


def longer_prompts() -> WhyAnswer:
    return play(_quiet(), chat(2, 90, rate=1.5, question=(90, 160)), 90)


def a_changed_template() -> WhyAnswer:
    dated = (
        replace(call, prompt=[number % 97 + 7] * 3 + call.prompt)
        for number, call in enumerate(chat(2, 60))
    )
    return play(_quiet(), dated, 60)


def slow_decode() -> WhyAnswer:
    stage = _quiet()
    stage.step_ns *= 3
    stage.token_ns *= 3
    return play(stage, chat(2, 60), 60)


def a_hot_card() -> WhyAnswer:
    stage = _quiet()
    stage.gpu.slowed = HW_THERMAL
    stage.step_ns *= 3
    stage.token_ns *= 3
    return play(stage, chat(2, 60), 60)


def a_retry_storm() -> WhyAnswer:
    """A burst that clients do not wait for: they ask again, and the load stays."""
    stage = _quiet(patience=2.0, asks_again=True)
    stage.step_ns *= 3
    play(stage, chat(2, 20, rate=14), 20)
    stage.step_ns //= 3
    return play(stage, chat(3, 60, rate=9), 60)


def a_dead_loop() -> WhyAnswer:
    stage = _quiet()
    play(stage, chat(2, 20), 20)
    stage.hang(chat(3, 5), 40)
    return stage.why()


def a_pool_that_was_always_too_small() -> WhyAnswer:
    stage = Stage(num_blocks=90)
    return play(stage, chat(1, 300, rate=2.0), 300)


def a_working_set_larger_than_the_pool() -> WhyAnswer:
    """Conversations that fitted into the cache are joined by as many others."""
    stage = Stage(num_blocks=500)
    load = {"template": 2, "question": (12, 24), "rate": 2.0}
    answer = play(stage, chat(1, 400, users=14, **load), 400)
    assert answer.chain == [], answer.sentence
    return play(stage, chat(2, 150, users=60, **load), 150)


def _later(calls: Iterable[Call], seconds: float) -> list[Call]:
    return [replace(call, at=call.at + seconds) for call in calls]


USED: dict[Incident, Kind] = {
    a_neighbour_takes_memory: "neighbour",
    more_requests: "more_requests",
    longer_prompts: "longer_prompts",
    a_changed_template: "new_content",
    slow_decode: "slow_steps",
    a_hot_card: "slowed_down",
    a_retry_storm: "retries",
    a_dead_loop: "stalled",
    a_pool_that_was_always_too_small: "pool_full",
    a_working_set_larger_than_the_pool: "cache_too_small",
}


def longer_answers_by_and_by() -> WhyAnswer:
    """Each minute half as long again."""
    stage = _quiet()
    phases = [
        _later(chat(2 + minute, 60, answer=lengths), 60 * minute)
        for minute, lengths in enumerate([(60, 160), (150, 400), (400, 900), (700, 1500)])
    ]
    return play(stage, chain.from_iterable(phases), 240)


def an_emptied_cache() -> WhyAnswer:
    """Someone resets the cache every ten seconds."""
    stage = _quiet()
    for second in range(6):
        stage.pool.reset()
        stage.play(chat(2 + second, 10), 10)
    return stage.why()


def prompts_too_long_for_the_card() -> WhyAnswer:
    """Steps grow with the prompts, until the card has no room for their activations."""
    stage = _quiet(num_blocks=3900, max_num_batched_tokens=4096, max_model_len=8192)
    return play(stage, chat(2, 60, rate=1.0, question=(150, 200)), 60)


def a_ramp_beside_a_harmless_neighbour() -> WhyAnswer:
    """Requests rise over three minutes; another process took 300 MiB before."""
    stage = _quiet()
    stage.gpu.neighbour_bytes = int(0.3 * GIB)
    calls = [_later(chat(2 + half, 30, rate=1.5 + 2.0 * half), 30 * half) for half in range(6)]
    return play(stage, chain.from_iterable(calls), 180)


def a_hiccup_that_is_over() -> WhyAnswer:
    """Steps were slow for half a minute, and the queue drained after it."""
    stage = _quiet()
    stage.step_ns *= 12
    play(stage, chat(2, 30, rate=3), 30)
    stage.step_ns //= 12
    return play(stage, chat(3, 60), 60)


def two_neighbours() -> WhyAnswer:
    """A small one, then the one that is too much."""
    stage = _quiet()
    stage.gpu.neighbour_bytes = int(0.9 * GIB)
    play(stage, chat(2, 60), 60)
    stage.gpu.neighbour_bytes = int(7.3 * GIB)
    return play(stage, chat(3, 60), 60)


def impatient_clients_of_slow_steps() -> WhyAnswer:
    stage = _quiet(patience=5.0)
    stage.step_ns *= 20
    return play(stage, chat(2, 60), 60)


def a_burst_three_minutes_ago() -> WhyAnswer:
    stage = _quiet()
    play(stage, chat(2, 40, rate=15), 40)
    return play(stage, chat(3, 180), 180)


def a_hot_card_and_then_more_requests() -> WhyAnswer:
    stage = _quiet()
    stage.gpu.slowed = HW_THERMAL
    stage.step_ns *= 4
    play(stage, chat(2, 60), 60)
    return play(stage, chat(3, 60, rate=6), 60)


def long_prompts_in_a_small_pool() -> WhyAnswer:
    stage = _quiet(num_blocks=220)
    return play(stage, chat(2, 90, question=(60, 110)), 90)


def agents_that_have_gone() -> WhyAnswer:
    """Forty that wait for their answers, which are long for a while; asked a minute after it."""
    stage = _quiet(num_blocks=400, max_num_seqs=16)
    stage.agents = 40
    stage.errands = chain(
        chat(2, 60, question=(10, 30), answer=(20, 60), rate=5),
        chat(3, 60, question=(10, 30), answer=(200, 400), rate=2),
        chat(4, 3600, question=(10, 30), answer=(20, 60)),
    )
    play(stage, chat(5, 240), 240)
    stage.agents = 0
    return play(stage, chat(6, 60), 60)


def two_bursts_while_the_queue_drains() -> WhyAnswer:
    """The second comes before the first is served; asked a minute and a half after it."""
    stage = _quiet(num_blocks=300)
    for seed in (2, 4):
        play(stage, chat(seed, 20, rate=12), 20)
        play(stage, chat(seed + 1, 40), 40)
    return play(stage, chat(6, 60), 60)


def slow_steps_that_filled_the_pool() -> WhyAnswer:
    """Steps are slow for two minutes; asked a minute after it."""
    stage = _quiet(num_blocks=300)
    stage.step_ns *= 8
    play(stage, chat(2, 120), 120)
    stage.step_ns //= 8
    return play(stage, chat(3, 60), 60)


def longer_answers_that_are_over() -> WhyAnswer:
    """For two minutes they are seven times as long; asked a minute and a half after it."""
    stage = _quiet(num_blocks=300)
    play(stage, chat(2, 120, answer=(250, 600)), 120)
    return play(stage, chat(3, 90), 90)


HELD_OUT: dict[Incident, Kind] = {
    two_neighbours: "neighbour",
    impatient_clients_of_slow_steps: "slow_steps",
    a_burst_three_minutes_ago: "more_requests",
    a_hot_card_and_then_more_requests: "slowed_down",
    long_prompts_in_a_small_pool: "longer_prompts",
    longer_answers_by_and_by: "longer_answers",
    an_emptied_cache: "cache_reset",
    prompts_too_long_for_the_card: "longer_prompts",
    a_ramp_beside_a_harmless_neighbour: "more_requests",
    a_hiccup_that_is_over: "slow_steps",
}

ASKED_LATE: dict[Incident, Kind] = {
    agents_that_have_gone: "more_requests",
    two_bursts_while_the_queue_drains: "more_requests",
    slow_steps_that_filled_the_pool: "slow_steps",
    longer_answers_that_are_over: "longer_answers",
}
