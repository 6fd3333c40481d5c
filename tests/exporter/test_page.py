"""One page: several engines, every family once, and a part that raises leaves alone."""

import logging
from collections import Counter

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kvscope_events.bus import Subscription
from kvscope_events.events import Hello, NamesStored, ObserverStopped
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect import parts
from kvscope_exporter.collect.parts import Part
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.exporter.machine import MACHINE
from tests.exporter.page import FIXED_CLOCK, HELLO, hello, put, value
from tests.exporter.scenario import play

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def targets_of(*hellos: Hello, clock: Clock = FIXED_CLOCK) -> list[Target]:
    """One target for each, all with the same played run behind them."""
    targets = []
    for greeting in hellos:
        subscription = Subscription(64)
        put(subscription, -1, 0, greeting)
        play(subscription)
        targets.append(Target(InProcessSource(subscription), compat={"vllm"}, clock=clock))
    return targets


def page_of(*hellos: Hello, machine: Machine = MACHINE) -> Exporter:
    return Exporter(targets_of(*hellos), machine=machine, clock=FIXED_CLOCK)


def families_of(exporter: Exporter) -> list[str]:
    return [family.name for family in exporter.registry.collect()]


def test_two_engines_share_a_page_with_every_family_once() -> None:
    exporter = page_of(hello(engine="0"), hello(engine="1"))
    text = exporter.render(OPENMETRICS)[0].decode()
    parsed = {f.name: f for f in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    assert max(Counter(families_of(exporter)).values()) == 1
    for engine in ("0", "1"):
        (sample,) = (
            s for s in parsed["kvscope_kv_usable_blocks"].samples if s.labels["engine"] == engine
        )
        assert sample.value == 9
    one = page_of(hello(engine="0")).render(OPENMETRICS)[0].decode()
    lines = set(text.splitlines())
    # The second engine begins after the first was last heard, as after a restart: no silence.
    own = (line for line in one.splitlines() if 'engine="0"' in line and "_silence_" not in line)
    assert {*own} <= lines


def break_part(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make one part of every engine raise."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    changed = tuple(
        Part(part.group, part.fold, broken) if part.group == name else part  # type: ignore[arg-type]
        for part in parts.PARTS
    )
    monkeypatch.setattr(parts, "PARTS", changed)


def test_a_part_that_raises_is_absent_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = page_of(hello(engine="0"), hello(engine="1"))
    expected = Counter(families_of(whole))
    break_part(monkeypatch, "prefix")
    exporter = page_of(hello(engine="0"), hello(engine="1"))
    with caplog.at_level(logging.ERROR):
        families = Counter(families_of(exporter))
        exporter.render()
    prefix = {row.family for row in CATALOGUE if row.group == "prefix"}
    assert set(expected) - set(families) == prefix & set(expected)
    assert (value(exporter, "kvscope_collect_errors_total") or 0) >= 2
    assert len([r for r in caplog.records if "'prefix'" in r.getMessage()]) == 1
    text = exporter.render(OPENMETRICS)[0].decode()
    assert list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def test_two_engines_of_one_name_are_not_shown_as_one(caplog: pytest.LogCaptureFixture) -> None:
    exporter = page_of(HELLO, HELLO)
    with caplog.at_level(logging.ERROR):
        samples = [
            sample
            for family in exporter.registry.collect()
            if family.name == "kvscope_kv_usable_blocks"
            for sample in family.samples
        ]
    assert len(samples) == 1
    assert "only the first is shown" in caplog.text


def test_what_a_source_does_not_tell_is_absent_and_never_0() -> None:
    tells = [name for name in HELLO.tells if name not in ("RequestPreempted", "PrefixLookup")]
    families = set(families_of(page_of(hello(tells=tells))))
    unreported = {
        row.family for row in CATALOGUE if {"RequestPreempted", "PrefixLookup"} & set(row.events)
    }
    assert "kvscope_preemptions" in unreported
    assert not unreported & families
    assert "kvscope_kv_blocks" in families


def test_before_the_hello_of_an_engine_only_its_stream_is_shown() -> None:
    target = Target(InProcessSource(Subscription(8)), compat={"vllm"}, clock=FIXED_CLOCK)
    exporter = Exporter([target], clock=FIXED_CLOCK)
    groups = {row.group for row in CATALOGUE if row.family in set(families_of(exporter))}
    assert groups == {"self", "server"}
    for family in exporter.registry.collect():
        for sample in family.samples:
            assert "model_name" not in sample.labels


def test_an_engine_that_loads_is_there_and_not_ready() -> None:
    subscription = Subscription(8)
    target = Target(InProcessSource(subscription), compat={"vllm"}, clock=FIXED_CLOCK)
    exporter = Exporter([target], clock=FIXED_CLOCK)
    put(subscription, 0, 0, hello(ready=False, max_model_len=None))
    assert value(exporter, "kvscope_engine_ready", model_name="demo") == 0
    assert value(exporter, "kvscope_kv_capacity_blocks") is None
    put(subscription, 1, 0, hello(ready=True))
    assert value(exporter, "kvscope_engine_ready", model_name="demo") == 1


def test_an_observer_that_switched_itself_off_leaves_no_stale_figure() -> None:
    (target,) = targets_of(HELLO)
    exporter = Exporter([target], clock=FIXED_CLOCK)
    assert value(exporter, "kvscope_kv_blocks", state="active") is not None
    source = target.source
    assert isinstance(source, InProcessSource)
    put(source._subscription, 100, 0, ObserverStopped("on purpose"))
    assert value(exporter, "kvscope_kv_blocks", state="active") is None


def test_an_engine_that_begins_anew_in_the_middle_of_a_page_leaves_no_series_twice() -> None:
    first, second = targets_of(hello(), hello())
    exporter = Exporter([first, second], clock=FIXED_CLOCK)
    collect = first.collect

    def restart_afterwards(*arguments: object, **options: object) -> object:
        shown = collect(*arguments, **options)  # type: ignore[arg-type]
        first.pipeline._renew()
        return shown

    first.collect = restart_afterwards  # type: ignore[method-assign,assignment]
    for family in exporter.registry.collect():
        if family.name == "kvscope_kv_blocks":
            states = [sample.labels["state"] for sample in family.samples]
            assert sorted(states) == sorted(set(states))
            return
    raise AssertionError("the first engine is not on the page")


def test_no_engine_is_held_while_another_one_is_read() -> None:
    first, second = targets_of(hello(engine="0"), hello(engine="1"))
    exporter = Exporter([first, second], clock=FIXED_CLOCK)
    held: list[bool] = []
    collect = second.collect

    def watch(*arguments: object, **options: object) -> object:
        held.append(first.pipeline._lock.locked())
        return collect(*arguments, **options)  # type: ignore[arg-type]

    second.collect = watch  # type: ignore[method-assign,assignment]
    exporter.render()
    assert held == [False]


def test_an_observer_and_a_stream_of_names_of_one_engine_share_a_page() -> None:
    (engine,) = targets_of(hello())
    subscription = Subscription(64)
    put(subscription, 0, 0, hello(tells=["NamesStored", "NamesRemoved", "NamesCleared"]))
    put(subscription, 1, 0, NamesStored("host", [b"a", b"b"], None, 16))
    source = InProcessSource(subscription)
    source.kind = "kv_events"
    source.state_known = True
    stream = Target(source, compat=(), clock=FIXED_CLOCK)
    exporter = Exporter([engine, stream], machine=MACHINE, clock=FIXED_CLOCK)
    assert value(exporter, "kvscope_kv_tier_blocks", tier="host") == 2
    assert value(exporter, "kvscope_kv_usable_blocks") == 9
    assert max(Counter(families_of(exporter)).values()) == 1
