"""The head and the panels of an engine that is quiet, under pressure, and disturbed."""

import re
from collections.abc import Callable
from operator import itemgetter

import pytest
from rich.cells import cell_len

from kvscope.top.follower import PlaceStatus
from kvscope.top.table import Column, Table
from kvscope_exporter import words
from tests.repo.checkout import ROOT
from tests.top.staged import disturbed, pressed, quiet, reading_of, seen_of, text_of

GOLDEN = ROOT / "tests/exporter/golden/openmetrics.txt"
PAGE = """\
kvscope_server_state{state="ready"} 1
kvscope_kv_active_ratio{engine="0",model_name="m"} 0.25
"""


@pytest.mark.parametrize("width", [33, 80, 200])
@pytest.mark.parametrize("seen", [quiet, pressed, disturbed])
def test_no_line_is_wider_than_the_terminal(seen: Callable[[], PlaceStatus], width: int) -> None:
    assert max(map(cell_len, text_of(seen(), width).split("\n"))) <= width


def test_the_verdict_is_the_first_line() -> None:
    assert text_of(quiet()).startswith("✔ Nothing is wrong")
    lines = text_of(disturbed()).split("\n")
    assert lines[0].startswith("▲ 00:02:0")
    assert "another process (pid 4242) took 7.2 GiB" in lines[0]


def test_strip_and_numbers_of_the_pool() -> None:
    text = text_of(pressed())
    assert any(len(line) == 80 and set(line) <= set("█▓▒░·x") for line in text.split("\n"))
    assert "█ active" in text
    for label in ("usable", "hit rate", "TTFT p95", "decode/s", "waiting", "full 60 s"):
        assert label in text


def test_the_tape_has_victim_taker_and_cost() -> None:
    lines = text_of(pressed(), 120).split("\n")
    head = next(i for i, line in enumerate(lines) if "victim" in line)
    assert "→ taken by" in lines[head]
    assert "recomputed" in lines[head]
    row = re.compile(r" *[\d.]+ (ms|s|min) +\d+ +(\d+( and \d+\+? more)?|wanted by \w+) +\d+/\d+ ")
    assert row.match(lines[head + 1]), lines[head + 1]
    assert re.search(r"Preemptions  \d+ in all: [\d.k]+ tokens recomputed", lines[head - 1])


def test_the_other_panels_have_what_matters() -> None:
    text = text_of(pressed(), 140)
    assert "regret" in text
    assert text.count("◀ you are here") == 1
    assert " points" in text
    assert "last 15 s" in text
    assert "decode" in text


def test_the_memory_of_a_gpu_by_what_holds_it() -> None:
    page = re.sub(r" # EOF| # \{.*", "", GOLDEN.read_text()).replace("# EOF\n", "")
    text = text_of(seen_of([reading_of(page)]))
    assert "GPU 0 NVIDIA H100  80.0 GiB, headroom 22.5 GiB, busy 97 %" in text
    for part in ("weights 16.0 GiB", "KV pool 24.0 GiB", "other processes 9.0 GiB"):
        assert part in text
    assert "other processes 7.2 GiB" in text_of(disturbed())


def test_a_gpu_whose_memory_is_not_split_says_so() -> None:
    gpu = 'gpu="0",uuid="GPU-1"'
    page = f"""{PAGE}\
kvscope_gpu_memory_total_bytes{{{gpu}}} 8589934592
kvscope_gpu_memory_free_bytes{{{gpu}}} 1073741824
"""
    text = text_of(seen_of([reading_of(page)]))
    assert "8.0 GiB, 1.0 GiB free\n" in text
    assert "The page does not split it" in text


def test_answers_are_the_text_that_commands_print() -> None:
    text = text_of(disturbed())
    assert "Do:       End pid 4242" in text
    assert "[cause, confidence" in text
    assert "tokens: share of all prompt and output tokens" in text


def test_what_a_page_does_not_have_is_a_word_and_never_0() -> None:
    text = text_of(seen_of([reading_of(PAGE)]), 200)
    assert "active       25 %" in text
    for label in ("usable", "cached", "free", "hit rate", "TTFT p95", "decode/s", "waiting"):
        assert f"{label:<10}not reported" in text
    assert "unknown: not asked here" in text
    assert "active 25 %" in text
    assert " 0 " not in text.replace("engine 0 ", "")
    queue = 'kvscope_requests{engine="0",model_name="m",state="waiting"} 3\n'
    assert "\nPool: not reported\n" in text_of(seen_of([reading_of(queue)]))


def test_a_server_without_engines_has_its_state() -> None:
    seen = seen_of([reading_of('kvscope_server_state{state="gone"} 1\n')])
    assert text_of(seen) == "http://10.0.0.7:8010: gone"


def test_a_name_cannot_steer_the_terminal() -> None:
    page = (
        'kvscope_kv_active_ratio{engine="0\x1b]0;owned\x07",model_name="evil\x1b[2J\u202e"} 0.5\n'
    )
    for line in text_of(seen_of([reading_of(page)]), 200).split("\n"):
        assert line.isprintable(), repr(line)
    assert "evil\\x1b[2J" in text_of(seen_of([reading_of(page)]), 200)


ROWS = [("a", 3), ("b", None), ("cc", 12)]
TABLE = Table(
    (Column("name", itemgetter(0), left=True), Column("count", itemgetter(1), words.count)),
    *(ROWS, "nothing"),
)


def test_rows_are_sorted_by_numbers_and_filtered_by_text() -> None:
    assert TABLE.sorts == ["count"]
    shown = [line.plain.split()[0] for line in TABLE.draw(40, "count")]
    assert shown == ["name", "cc", "a", "b"]
    assert [line.plain for line in TABLE.draw(40, pattern="UNK")][1:] == ["b     unknown"]
    assert TABLE.draw(40, pattern="zz")[0].plain == "nothing has 'zz' in it"
    assert [line.plain for line in Table(TABLE.columns, [], "nothing").draw(40)] == ["nothing"]
