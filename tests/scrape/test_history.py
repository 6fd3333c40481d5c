"""Facts that follow only from several pages: when an engine last stepped, and counters that
differ."""

from kvscope_exporter.scrape.mapping import PageMapper
from kvscope_exporter.scrape.tables import TABLES


def last_steps(*pages: tuple[float, int]) -> list[float]:
    """By time and number of steps on the page."""
    mapper = PageMapper(TABLES["vllm"][0])
    found = []
    for now, steps in pages:
        page = f'vllm:iteration_tokens_total_count{{engine="0",model_name="m"}} {steps}\n'
        reading = mapper.read(page, now=now).engines["m", "0"]
        found.append(now - reading.values["kvscope_last_step_age_seconds"][()])
    return found


def test_an_engine_stepped_at_the_latest_when_its_steps_were_first_seen() -> None:
    pages = [(10, 5), (25, 5), (40, 6), (55, 6), (70, 6)]
    assert last_steps(*pages) == [10, 10, 40, 40, 40]


def test_a_restart_is_a_step() -> None:
    assert last_steps((10, 500), (25, 500), (40, 1)) == [10, 10, 40]


def test_an_engine_that_was_away_is_new() -> None:
    mapper = PageMapper(TABLES["llama.cpp"][0])
    ages = []
    for now, page in (
        (10, "n_decode_total 5"),
        (25, "requests_deferred 0"),
        (40, "n_decode_total 5"),
    ):
        values = mapper.read(f"llamacpp:{page}\n", now=now).engines["", "0"].values
        ages.append(values.get("kvscope_last_step_age_seconds", {}).get(()))
    assert ages == [0, None, 0]


def recomputed(*pages: tuple[int, int]) -> list[float]:
    """By tokens computed, and those of them that were computed for the first time."""
    mapper = PageMapper(TABLES["sglang"][0])
    found = []
    for computed, first in pages:
        page = f'sglang:realtime_tokens_total{{mode="prefill_compute",model_name="m"}} {computed}\n'
        page += f'sglang:prefill_effective_tokens_total{{mode="input",model_name="m"}} {first}\n'
        values = mapper.read(page, now=0).engines["m", "0"].values
        found.append(values["kvscope_preemption_recomputed_tokens_total"]["recompute", ""])
    return found


def test_a_counter_from_two_does_not_fall_while_one_is_ahead() -> None:
    assert recomputed((100, 100), (150, 120), (150, 150), (200, 150)) == [0, 30, 30, 50]


def test_a_counter_from_two_falls_when_the_server_restarts() -> None:
    assert recomputed((100, 40), (10, 10), (20, 15)) == [60, 0, 5]
