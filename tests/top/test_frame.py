"""Frames of several sizes, of an engine that is quiet, under pressure, and disturbed."""

import re
from collections.abc import Callable
from functools import cache

import pytest
from rich.cells import cell_len

from kvscope.top.figures import EngineName
from kvscope.top.follower import Seen
from kvscope.top.frame import frame
from kvscope.top.panels import PANELS
from kvscope.top.view import View
from tests.repo.checkout import ROOT
from tests.top.staged import (
    SIZES,
    at_depth_of_page,
    disturbed,
    lines_of,
    pressed,
    quiet,
    seen_of,
    with_answers,
)

SITUATIONS: dict[str, Callable[[], Seen]] = {
    "quiet": cache(quiet),
    "pressed": cache(pressed),
    "disturbed": cache(disturbed),
}
GOLDEN = ROOT / "tests/exporter/golden/openmetrics.txt"
PAGE = """\
kvscope_server_state{state="ready"} 1
kvscope_kv_active_ratio{engine="0",model_name="m"} 0.25
"""


def panel(key: str) -> View:
    return View(panels=PANELS, panel=[p.key for p in PANELS].index(key))


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_frame_fills_the_screen_and_no_more(situation: str, width: int, height: int) -> None:
    seen = SITUATIONS[situation]()
    for key in [p.key for p in PANELS]:
        lines = frame([seen], panel(key), width, height, 2.0)
        assert len(lines) == height
        assert max(cell_len(line.plain) for line in lines) <= width


@pytest.mark.parametrize(
    ("situation", "begins"), [("quiet", "✔ Nothing is wrong"), ("disturbed", "▲ 00:02:0")]
)
def test_the_verdict_is_the_first_line(situation: str, begins: str) -> None:
    lines = lines_of([SITUATIONS[situation]()])
    assert lines[0].startswith(begins)
    if situation == "disturbed":
        assert "another process (pid 4242) took 7.2 GiB" in lines[0]


def test_eighty_columns_have_strip_numbers_and_three_panels() -> None:
    lines = lines_of([SITUATIONS["pressed"]()])
    text = "\n".join(lines)
    strip = next(line for line in lines if line.startswith("█"))
    assert len(strip) == 80
    assert "█ active" in text
    for label in ("usable", "hit rate", "TTFT p95", "decode/s", "waiting", "full 60 s"):
        assert label in text
    for title in ("1 Preemptions", "2 Sequences", "5 Tenants"):
        assert title in text
    assert lines[-1].startswith("q quit  ? help  tab panel  space freeze")


def test_the_tape_has_victim_taker_and_cost() -> None:
    lines = lines_of([SITUATIONS["pressed"]()], panel("preemptions"), 120, 40)
    head = next(i for i, line in enumerate(lines) if "victim" in line)
    assert "→ taken by" in lines[head]
    assert "recomputed" in lines[head]
    row = re.compile(r" *[\d.]+ (ms|s|min) +\d+ +(\d+( and \d+\+? more)?|wanted by \w+) +\d+/\d+ ")
    assert row.match(lines[head + 1]), lines[head + 1]
    assert re.search(r"Preemptions  \d+ in all: [\d.k]+ tokens recomputed", lines[head - 1])


def test_the_present_size_is_marked_among_others() -> None:
    text = "\n".join(lines_of([SITUATIONS["pressed"]()], panel("whatif"), 80, 30))
    assert "regret" in text
    assert text.count("◀ you are here") == 1
    assert " points" in text


def test_the_ledger_of_a_gpu_adds_up_to_its_memory() -> None:
    page = re.sub(r" # EOF| # \{.*", "", GOLDEN.read_text()).replace("# EOF\n", "")
    seen = seen_of([with_answers(page, EngineName("demo", "0"))])
    text = "\n".join(lines_of([seen], panel("memory"), 80, 40))
    assert "GPU 0 NVIDIA H100  80.0 GiB, headroom 22.5 GiB, busy 97 %" in text
    for part in ("weights 16.0 GiB", "KV pool 24.0 GiB", "other processes 9.0 GiB"):
        assert part in text


def test_a_neighbour_on_a_gpu_has_its_part_of_the_bar() -> None:
    text = "\n".join(lines_of([SITUATIONS["disturbed"]()], panel("memory"), 80, 24))
    assert "GPU 0" in text
    assert "other processes 7.2 GiB" in text


def test_a_gpu_whose_memory_is_not_split_says_so() -> None:
    gpu = 'gpu="0",uuid="GPU-1"'
    page = f"""{PAGE}\
kvscope_gpu_memory_total_bytes{{{gpu}}} 8589934592
kvscope_gpu_memory_free_bytes{{{gpu}}} 1073741824
"""
    text = "\n".join(lines_of([seen_of([at_depth_of_page(page)])], panel("memory"), 80, 24))
    assert "8.0 GiB, 1.0 GiB free\n" in text
    assert "The page does not split it" in text


def test_sequences_have_states_and_timelines() -> None:
    text = "\n".join(lines_of([SITUATIONS["pressed"]()], panel("sequences"), 140, 40))
    assert "last 15 s" in text
    assert "decode" in text


def test_why_has_the_remedy() -> None:
    text = "\n".join(lines_of([SITUATIONS["disturbed"]()], panel("why"), 80, 24))
    assert "Do        End pid 4242" in text
    assert "Not seen" in text


def test_what_a_page_does_not_have_is_a_word_and_never_0() -> None:
    seen = seen_of([at_depth_of_page(PAGE)])
    text = "\n".join(lines_of([seen], width=200, height=60))
    assert "active       25 %" in text
    for label in ("usable", "cached", "free", "hit rate", "TTFT p95", "decode/s", "waiting"):
        assert f"{label:<10}not reported" in text
    assert "unknown: only this server's own page is read" in text
    assert "active 25 %" in text
    assert " 0 " not in text.replace("engine 0 ", "")


def test_an_engine_without_a_pool_says_so() -> None:
    page = 'kvscope_requests{engine="0",model_name="m",state="waiting"} 3\n'
    lines = lines_of([seen_of([at_depth_of_page(page)])])
    assert "Pool: not reported" in lines


def test_a_name_cannot_steer_the_terminal() -> None:
    name = EngineName("evil\x1b[2J\x07\u202e", "0\x1b]0;owned\x07")
    page = f'kvscope_kv_active_ratio{{engine="{name.engine}",model_name="{name.model_name}"}} 0.5\n'
    seen = seen_of([with_answers(page, name)], "it said \x1b[31m no \x1b]0;x\x07")
    for key in [p.key for p in PANELS]:
        for line in lines_of([seen], panel(key), 200, 60):
            assert line.isprintable(), repr(line)
    assert "evil\\x1b[2J" in "\n".join(lines_of([seen], width=200))


def test_old_values_are_marked_and_the_reason_comes_first() -> None:
    reading = [at_depth_of_page(PAGE)]
    seen = seen_of(reading, "http://10.0.0.7:8010/metrics: Connection refused")
    lines = lines_of([seen])
    assert lines[0].startswith("No answer since ")
    assert "the values below are old" in lines[0]
    text = "\n".join(lines)
    assert "Connection refused" in text
    assert "OLD, of 00:16:40 UTC" in text
    assert "25 %" in text
    faded = frame([seen], View(panels=PANELS), 80, 24, 2.0)[6]
    assert any("dim" in str(span.style) for span in faded.spans)


def test_engines_are_listed_and_can_be_chosen() -> None:
    two = PAGE + PAGE.partition("\n")[2].replace('model_name="m"', 'model_name="other"')
    seen = seen_of([at_depth_of_page(two)])
    view = View(panels=PANELS)
    assert lines_of([seen], view)[1].startswith("m · engine 0")
    assert "one of 2, e: next" in lines_of([seen], view, width=120)[1]
    keys = [engine.key for server in seen.servers for engine in server.engines]
    view.press("e", keys, {})
    assert lines_of([seen], view)[1].startswith("other · engine 0")
    text = "\n".join(lines_of([seen], panel("engines"), 120, 24))
    assert "1 of 2 is shown" in text


def test_a_server_without_engines_has_its_state() -> None:
    text = "\n".join(
        lines_of([seen_of([at_depth_of_page('kvscope_server_state{state="gone"} 1\n')])])
    )
    assert "No engine is known yet." in text
    assert "http://10.0.0.7:8010: gone" in text


def test_help_names_every_key_panel_and_number() -> None:
    view = View(panels=PANELS, help=True, is_recording=True)
    text = "\n".join(lines_of([SITUATIONS["quiet"]()], view, 120, 100))
    assert "shift-tab" in text
    assert "To the next moment that the recorder marked." in text
    assert "8 Engines" in text
    assert "probability that within a minute" in text
