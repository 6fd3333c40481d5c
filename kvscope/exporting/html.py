"""A recording as one HTML file to attach to a ticket; it loads nothing and runs nothing.

The document is built as a tree, so every text of the recording is escaped when it is written.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise
from typing import BinaryIO
from xml.etree.ElementTree import Element, SubElement, tostring

from exporter import words
from exporter.answers.preemptions import OnePreemption, Preemptions
from exporter.answers.why.question import WhyAnswer
from exporter.playback.playback import Playback
from kvscope.exporting.block_map import block_map
from kvscope.exporting.charts import Line, Period, line_chart, stacked_chart
from kvscope.exporting.report import EngineCourse, Rates, Report, State, gather, rates
from kvscope_events.printable import one_line

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MOST_ROWS = 20
_MOST_ENGINES = 16
_TEXT = 400
"""Characters of a text from the recording."""


def write_html(playback: Playback, at_ns: int, out: BinaryIO) -> Iterator[float]:
    """at_ns: when the cause is asked for. Yields the share of the recording that was played."""
    report = yield from gather(playback, at_ns)
    out.write(b"<!doctype html>\n" + tostring(_page(report), encoding="utf-8", method="html"))


def _page(report: Report) -> Element:
    page = Element("html", {"lang": "en"})
    head = SubElement(page, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
    _add(head, "title", f"{report.opened.server}, {_day(report.at_ns)}")
    SubElement(head, "style").text = (files("kvscope.exporting") / "report.css").read_text()
    body = SubElement(SubElement(page, "body"), "main")
    _head(body, report)
    moments = [(mark.wall_ns, one_line(f"{mark.trigger}: {mark.text}")) for mark in report.marks]
    period = Period(report.begins_ns, report.ends_ns, moments)
    for engine in report.engines[:_MOST_ENGINES]:
        _engine(body, engine, period, report.at_ns, several=len(report.engines) > 1)
    if len(report.engines) > _MOST_ENGINES:
        _add(body, "p", f"{len(report.engines) - _MOST_ENGINES} further engines are not shown.")
    if report.gpus:
        _gpus(body, report)
    _settings(body, report)
    return page


def _head(body: Element, report: Report) -> None:
    _add(body, "h1", report.opened.server)
    states = [engine.states[-1] for engine in report.engines if engine.states]
    servers = dict.fromkeys(
        f"{hello.server} {hello.server_version}, {hello.model_name}"
        for hello in (state.hello for state in states)
    )
    if servers:
        _add(body, "p", "; ".join(servers))
    seconds = (report.ends_ns - report.begins_ns) / 1e9
    _add(body, "p", f"{_day(report.begins_ns)} to {_time(report.ends_ns)} UTC ({seconds:,.0f} s)")
    asked = f"Cause, map, preemptions and memory are those of {_time(report.at_ns)} UTC; "
    _add(body, "p", f"{asked}recorded by kvscope {report.opened.build}.", "soft")
    if report.problem is not None:
        _add(body, "p", f"The recording is not whole: {report.problem}.", "soft")
    for mark in report.marks[-_MOST_ROWS:]:
        line = SubElement(body, "p")
        _add(line, "time", _time(mark.wall_ns))
        _add(line, "span", f"{mark.trigger}: {mark.text}")


def _engine(
    body: Element, engine: EngineCourse, period: Period, at_ns: int, *, several: bool
) -> None:
    if several:
        _add(body, "h2", f"{engine.model_name}, engine {engine.engine}")
    if engine.why is None:
        _add(body, "p", f"The cause is unknown: {engine.unknown}", "why quiet")
    else:
        _why(body, engine.why)
    charts = SubElement(body, "div", {"class": "charts"})
    for chart in _charts(engine.states, period):
        charts.append(chart)
    if engine.cells:
        body.append(block_map(f"Blocks at {_time(at_ns)}", engine.cells))
    if engine.preemptions is not None and engine.preemptions.preemptions:
        _preemptions(body, engine.preemptions)


def _why(body: Element, why: WhyAnswer) -> None:
    box = SubElement(body, "div", {"class": "why" if why.chain else "why quiet"})
    if not why.chain:
        _add(box, "p", why.sentence)
    chain = SubElement(box, "ol")
    for number, clause in enumerate(why.chain):
        item = SubElement(chain, "li")
        _add(item, "time", _time(int(clause.at_seconds * 1e9)))
        until = clause.until_seconds
        over = "" if until is None else f", until {_time(int(until * 1e9))}"
        role = f" [cause, confidence {why.confidence}]" if not number else ""
        _add(item, "span", f"{clause.text}{over}{role}")
        if clause.evidence:
            evidence = ", ".join(_evidence(*each) for each in clause.evidence.items())
            _add(item, "span", evidence, "evidence")
    if why.remedy:
        _add(box, "p", f"Do: {why.remedy}")
    if why.excluded:
        _add(box, "p", f"Not seen: {', '.join(why.excluded)}.", "soft")


def _evidence(name: str, value: float) -> str:
    if name.endswith("bytes"):
        text = words.size(value)
    else:
        text = f"{value:.0f}" if name == "pid" else words.short(value)
    return f"{name.replace('_', ' ')} {text}"


def _charts(states: Sequence[State], period: Period) -> Iterator[Element]:
    def level(name: str, value: Callable[[State], float | None]) -> Line:
        return Line(name, [(state.at_ns, value(state)) for state in states])

    changes = [(after.at_ns, rates(before, after)) for before, after in pairwise(states)]

    def rate(name: str, value: Callable[[Rates], float | None]) -> Line:
        return Line(name, [(at, None if each is None else value(each)) for at, each in changes])

    layers = [
        level("active", lambda state: state.pool and state.pool.active),
        level("cached", lambda state: state.pool and state.pool.cached),
        level("free", lambda state: state.pool and state.pool.free),
    ]
    yield stacked_chart("Blocks of the pool", layers, period, words.short)
    requests = [
        level("running", lambda state: state.figures.running),
        level("waiting", lambda state: state.figures.waiting),
    ]
    yield line_chart("Requests", requests, period, words.short)
    first = [rate("p95", lambda each: each.first_token_seconds)]
    yield line_chart("Time to first token, 95th percentile", first, period, words.seconds)
    tokens = [
        rate("prefill", lambda each: each.prefill_tokens),
        rate("decode", lambda each: each.decode_tokens),
    ]
    yield line_chart("Tokens a second", tokens, period, words.short)
    hits = [rate("hits", lambda each: each.hit_ratio)]
    title = "Prefix cache: blocks found of those asked for"
    yield line_chart(title, hits, period, words.share, 1.0)
    lost = [rate("preemptions", lambda each: each.preemptions * 60)]
    yield line_chart("Preemptions a minute", lost, period, words.short)
    steps = [rate("steps", lambda each: each.step_seconds)]
    yield line_chart("Duration of a step", steps, period, words.seconds)


def _preemptions(body: Element, answer: Preemptions) -> None:
    total = sum(bill.preemptions for bill in answer.bill)
    again = sum(bill.recomputed_tokens for bill in answer.bill)
    stalled = sum(bill.stalled_seconds for bill in answer.bill)
    _add(body, "h2", "Preemptions")
    cost = f"{total:,} preemptions, {again:,} tokens computed again, {stalled:,.1f} s of waiting."
    newest = min(len(answer.preemptions), _MOST_ROWS)
    _add(body, "p", f"{cost} The last {newest}, the newest first:")
    names = ("time", "sequence", "cause", "blocks", "for sequence", "taken by", "then", "waited")
    rows = [_preemption(each) for each in answer.preemptions[:newest]]
    _table(body, names, rows, numbers={3})


def _preemption(each: OnePreemption) -> list[str]:
    taken = "unknown"
    if each.taken_by is not None:
        takers = [
            f"{'unknown' if taker.sequence is None else taker.sequence} ({taker.blocks:,})"
            for taker in each.taken_by
        ]
        taken = ", ".join(takers) or "none"
    return [
        _time(int(each.time_seconds * 1e9)),
        str(each.sequence),
        f"{each.cause.replace('_', ' ')}, {each.mode}",
        f"{each.blocks:,}",
        "" if each.wanted_by is None else str(each.wanted_by.sequence),
        taken,
        each.state,
        "" if each.stalled_seconds is None else words.seconds(each.stalled_seconds),
    ]


def _gpus(body: Element, report: Report) -> None:
    _add(body, "h2", f"Memory of the GPUs at {_time(report.at_ns)}")
    names = sorted({name for parts in report.gpus.values() for name in parts})
    rows = [
        [name.replace("_", " "), *(_bytes(parts.get(name)) for parts in report.gpus.values())]
        for name in names
    ]
    rows.append(["total", *(_bytes(sum(parts.values())) for parts in report.gpus.values())])
    columns = ("", *report.gpus)
    _table(body, columns, rows, numbers=set(range(1, len(columns))))


def _settings(body: Element, report: Report) -> None:
    _add(body, "h2", "Configuration")
    rows: list[list[str]] = []
    for engine in report.engines[:_MOST_ENGINES]:
        state = engine.states[-1] if engine.states else None
        if state is not None:
            rows += [
                [name, value]
                for name, value in _facts(state)
                if [name, value] not in rows  # engines of one server are mostly alike
            ]
    rows += [[f"recorder: {name}", value] for name, value in report.opened.settings.items()]
    _table(body, ("", ""), rows)


def _facts(state: State) -> Iterator[tuple[str, str]]:
    hello, pool = state.hello, state.pool
    yield "server", f"{hello.server} {hello.server_version}"
    yield "model", hello.model_name
    yield "engine", hello.engine
    facts = {
        "max_model_len": hello.max_model_len,
        "prefix caching": {True: "on", False: "off", None: None}[hello.enable_prefix_caching],
        "type of K and V": hello.cache_dtype,
        "gpu_memory_utilization": hello.gpu_memory_utilization,
        "pool sized by": hello.pool_sized_by,
        "device of the pool": hello.pool_device,
        "eviction": hello.eviction_policy,
        **hello.settings,
    }
    yield from ((name, f"{value}") for name, value in facts.items() if value is not None)
    if pool is not None:
        blocks = pool.active + pool.cached + pool.free
        yield "usable blocks", f"{blocks:,}, and {pool.reserved:,} reserved"
        yield "block", f"{pool.block_size:,} tokens, {_bytes(pool.bytes_per_block)}"


def _table(
    body: Element,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: set[int] | frozenset[int] = frozenset(),
) -> None:
    """numbers: columns that are aligned on the right."""
    scrolled = {"class": "wide", "tabindex": "0", "role": "group", "aria-label": "table"}
    table = SubElement(SubElement(body, "div", scrolled), "table")
    if any(names):
        heads = SubElement(table, "tr")
        for column, name in enumerate(names):
            _add(heads, "th" if name else "td", name, "number" if column in numbers else None)
    for row in rows:
        cells = SubElement(table, "tr")
        for column, text in enumerate(row):
            _add(cells, "td", text, "number" if column in numbers else None)


def _add(parent: Element, tag: str, text: str, kind: str | None = None) -> None:
    element = SubElement(parent, tag, {} if kind is None else {"class": kind})
    element.text = one_line(text, _TEXT)


def _day(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _time(wall_ns: int) -> str:
    return words.clock(wall_ns / 1e9)


def _bytes(value: int | None) -> str:
    return "" if value is None else words.size(value)
