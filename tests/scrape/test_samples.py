"""The parser is total, agrees with the library, and a broken line spoils its name alone."""

import os
import random
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kvscope_exporter.scrape import samples as samples_module
from kvscope_exporter.scrape.engines import MAX_ENGINES
from kvscope_exporter.scrape.mapping import PageMapper
from kvscope_exporter.scrape.samples import MAX_LINE, SampleParser, Samples
from kvscope_exporter.scrape.tables import TABLES
from kvscope_exporter.scrape.value import Unusable
from tests.scrape.cases import others, sglang, vllm
from tests.scrape.cases.case import NOW, flat

CASES = (*vllm.CASES, *sglang.CASES, *others.CASES)


def parse(text: str, *wanted: str) -> Samples:
    return SampleParser(wanted or ("a", "b")).parse(text)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1", 1),
        ("a{} 1", 1),
        ("  a\t1", 1),
        ("a 1.5e3 1700000000000", 1500),
        ('a{x="} 7",y="{"} 2', 2),
        ('a{x="q\\"} 9"} 3', 3),
        ("a 4\r", 4),
        ('a{x="1"} 5 # {trace_id="t"} 0.3 1.0', 5),
        ('a{x="1",} 6', 6),
    ],
)
def test_a_line_is_read_alike_the_first_time_and_later(line: str, value: float) -> None:
    parser = SampleParser(("a",))
    for _ in range(3):
        page = parser.parse(f"# HELP a b\n\n{line}\n")
        assert [v for _, v in page.by_name["a"]] == [value]
        assert page.num_malformed == 0


@pytest.mark.parametrize(
    "line",
    [
        *("a", "a x", "a{ 1", 'a{x="1" 1', "a 1_000", "a \u0661", "a 1 2 3", "a{x=1} 2", "a 1 x"),
        f'a {"9" * 400} # {{x="1"}} 1',
        *('a{x="1",x="2"} 1', f'a{{x="{"y" * MAX_LINE}"}} 1', 'a{"b"} 1'),
    ],
)
def test_a_broken_line_spoils_its_name_and_no_other(line: str) -> None:
    page = parse(f'a{{z="0"}} 1\n{line}\nb 2\n')
    assert page.num_malformed == 1
    with pytest.raises(Unusable):
        page.samples(("a",))
    assert page.samples(("b",)) == [({}, 2)]


def test_a_sample_that_comes_twice_has_no_value() -> None:
    page = parse('a{x="1",y="2"} 1\na{y="2",x="1"} 1\n')
    assert page.num_malformed == 1
    with pytest.raises(Unusable, match="twice"):
        page.samples(("a",))


def test_a_page_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "MAX_SECONDS", 0.0)
    page = "".join(f'vllm:generation_tokens_total{{engine="{i}"}} 1\n' for i in range(100))
    mapper = PageMapper(TABLES["vllm"][0])
    assert mapper.read(page, now=NOW).is_cut
    monkeypatch.setattr(samples_module, "MAX_SECONDS", 60.0)
    assert len(mapper.read(page, now=NOW).engines) == 100


def test_labels_beyond_the_bound_leave_nothing_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "MAX_LABELS", 1000)
    parser = SampleParser(("a",))
    lines = ["a{" + ",".join(f'b{n}="{line}"' for n in range(300)) + "} 1\n" for line in range(4)]
    assert not parser.parse("".join(lines[:3])).is_cut
    for _ in range(2):
        assert parser.parse("".join(lines)).is_cut
        assert not parser._parsed


@pytest.mark.parametrize("count", ["1.5", "-1", "NaN", "+Inf", "1e16"])
def test_a_histogram_of_what_cannot_be_counted_is_none(count: str) -> None:
    name = "vllm:e2e_request_latency_seconds"
    parts = (f'_bucket{{le="1"}} {count}', f'_bucket{{le="+Inf"}} {count}', f"_count {count}")
    page = "".join(f"{name}{part}\n" for part in (*parts, "_sum 0.5"))
    reading = PageMapper(TABLES["vllm"][0]).read(page, now=NOW)
    assert reading.engines == {}
    assert reading.num_contradictory == 1
    page = page.replace(f" {count}", " 2")
    (engine,) = PageMapper(TABLES["vllm"][0]).read(page, now=NOW).engines.values()
    assert engine.histograms.keys()


def test_engines_beyond_the_bound_and_endless_names_are_left_out_and_counted() -> None:
    page = "".join(f'vllm:generation_tokens_total{{engine="{i}"}} {i}\n' for i in range(300))
    page += f'vllm:generation_tokens_total{{engine="{"x" * 600}"}} 1\n'
    page += 'vllm:generation_tokens_total{other="0"} 1\n'
    reading = PageMapper(TABLES["vllm"][0]).read(page, now=NOW)
    assert list(reading.engines) == [*(("", str(i)) for i in range(MAX_ENGINES)), ("", "")]
    assert reading.num_refused == 300 - MAX_ENGINES + 1


def test_names_that_are_never_together_do_not_multiply_without_bound() -> None:
    page = "".join(f'vllm:generation_tokens_total{{engine="{i}"}} 1\n' for i in range(3000))
    page += "".join(f'vllm:generation_tokens_total{{model_name="{i}"}} 1\n' for i in range(3000))
    reading = PageMapper(TABLES["vllm"][0]).read(page, now=NOW)
    assert len(reading.engines) <= 2 * MAX_ENGINES
    assert reading.num_refused


def test_nothing_is_kept_of_lines_that_come_no_more() -> None:
    parser = SampleParser(("a",))
    for i in range(100):
        parser.parse("".join(f'a{{x="{i}-{j}"}} 1\n' for j in range(10)))
    assert len(parser._parsed) == 10


@pytest.mark.parametrize("text", [case.page for case in CASES[:8]])
def test_what_is_read_is_what_the_library_reads(text: str) -> None:
    library = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for line in text.splitlines()
        for family in text_string_to_metric_families(line)
        for sample in family.samples
    }
    page = SampleParser({name for name, _ in library}).parse(text)
    assert {
        (name, frozenset(labels.items())): value
        for name, samples in page.by_name.items()
        for labels, value in samples
    } == pytest.approx(library, nan_ok=True)


@given(st.text(), st.text(alphabet='a{}"=\\,.# \n\t01xle+-InfNaN_'))
def test_any_text_gives_a_reading(text: str, likely: str) -> None:
    for page in (text, likely, f"vllm:generation_tokens_total{{{likely}}} {text}"):
        for tables in TABLES.values():
            for table in tables:
                PageMapper(table).read(page, now=NOW)


@pytest.mark.slow
def test_mutated_pages_give_numbers_or_none() -> None:
    """Bytes of pages replaced, removed or repeated; KVSCOPE_FUZZED_PAGES=100000 for more."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    lines = [case.page.splitlines() for case in CASES]
    mappers = {kind: [PageMapper(t) for t in tables] for kind, tables in TABLES.items()}
    for number in range(int(os.environ.get("KVSCOPE_FUZZED_PAGES", "10000"))):
        which = rng.randrange(len(CASES))
        start = rng.randrange(len(lines[which]))
        page = lines[which][start : start + 6]  # of a whole page most lines would stay as they were
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(page))
            page[at] = _mutated(rng, page[at])
        for mapper in mappers[CASES[which].kind]:
            found = flat([mapper.read("\n".join(page), now=NOW)])
            values = [v for series in found.values() for v in series.values()]
            numbers = [n for v in values for n in (v if isinstance(v, tuple) else (v,))]
            assert all(map(isfinite, numbers)), f"seed {seed}, page {number}"


def _mutated(rng: random.Random, line: str) -> str:
    at = rng.randrange(len(line) + 1)
    what = rng.randrange(4)
    if what == 0:
        return line[:at]
    if what == 1:
        return line[:at] + rng.choice('{}"=,\\ #_\n\t\x00\u00e9\U0001f600-+.eN0') + line[at:]
    if what == 2:
        return line[:at] + line[rng.randrange(len(line) + 1) :]
    return line + "\n" + line
