"""A source on real sockets: late joins, gaps, replays, restarts, names that are learnt late."""

import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kvscope_events.events import Hello
from kvscope_events.producers import KV_STREAM_EVENTS
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.clock import Clock
from kvscope_exporter.sources.kv_events import KvEventsSource, reader
from kvscope_exporter.sources.kv_events.reader import STALE_NS
from kvscope_exporter.sources.source import Source
from tests.kv_events.dialects import BY_NAME, Removed, Stored, one
from tests.kv_events.publisher import Publish, Publisher
from tests.kv_events.watching import watched
from tests.support.waiting import wait_for


def test_it_is_a_source_that_knows_nothing_before_a_server_is_there(tmp_path: Path) -> None:
    with watched(tmp_path) as there:
        source: Source = there.source
        assert (source.kind, source.endpoint, source.session) == ("kv_events", there.endpoint, "")
        assert (source.up, source.state_known, source.last_message_ns) == (False, False, None)
        assert (source.batches_dropped, source.gaps, source.superseded) == (0, 0, False)
        assert source.decode_errors == {
            **{"malformed": 0, "too_large": 0, "unknown_event": 0, "second_publisher": 0}
        }
        assert source.take() is None
        assert there.blocks() is None
        assert there.shown("kvscope_source_up") == 0


@pytest.mark.parametrize(("bind", "advice"), [(False, "`bind: true`"), (True, "leave `bind` out")])
def test_two_sides_of_which_neither_finds_the_other_are_logged_once(
    bind: bool,
    advice: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server connects where the sidecar does, or listens where the sidecar does."""
    monkeypatch.setattr(reader, "UNHEARD_NS", 0)
    endpoint = f"ipc://{tmp_path}/events"
    publisher = Publisher(endpoint, bind=False) if not bind else None
    source = KvEventsSource(endpoint, server="vllm", engine="0", clock=Clock(), bind=bind)
    try:
        wait_for(lambda: [r for r in caplog.records if r.name == reader.__name__])
        wait_for(lambda: source.session == "" and not source.up)
    finally:
        source.close()
        if publisher is not None:
            publisher.close()
    (record,) = (r for r in caplog.records if r.name == reader.__name__)
    assert endpoint in record.getMessage()
    assert advice in record.getMessage()


def test_who_joins_late_shows_the_whole_history(tmp_path: Path, publish: Publish) -> None:
    publisher = publish()
    publisher.say(one(1), one(2), Stored((3, 4), 2))
    publisher.say(Removed((2,)), one(3), Stored((1, 2), medium="CPU"))
    with watched(tmp_path) as there:
        there.expect(4)
        assert there.blocks("host") == 2
        assert there.shown("kvscope_kv_tier_stored_blocks_total", tier="device") == 5
        assert there.shown("kvscope_kv_tier_removed_blocks_total", tier="device") == 1
        assert there.blocks("disk") is None, "a tier that the server never named"
        publisher.say(Removed((3,)), one(2))
        wait_for(lambda: there.shown("kvscope_kv_tier_removed_blocks_total", tier="device") == 2)
        assert (there.source.gaps, there.source.batches_dropped) == (0, 0)
        assert publisher.requests == [0]


def test_the_page_is_one_that_parsers_read(tmp_path: Path, publish: Publish) -> None:
    publisher = publish()
    publisher.say(one(1), one(1, "CPU"), one(1, "CPU"))
    with watched(tmp_path, model_name="m") as there:
        there.expect(1)
        page, _ = there.exporter.render("application/openmetrics-text;version=1.0.0")
        lines = {
            line
            for line in page.decode().splitlines()
            if line.startswith("kvscope_kv_tier_blocks{")
        }
        assert lines == {
            'kvscope_kv_tier_blocks{engine="0",model_name="m",tier="device"} 1.0',
            'kvscope_kv_tier_blocks{engine="0",model_name="m",tier="host"} 2.0',
        }
        parsed = {f.name for f in text_string_to_metric_families(page.decode())}  # type: ignore[no-untyped-call]
        told = [row for row in CATALOGUE if KV_STREAM_EVENTS.issuperset(row.events)]
        rows = {row.family for row in told if row.group == "tiers"}
        assert len(rows) == 3
        assert rows <= parsed
        others = {row.family for row in CATALOGUE if row.group not in ("tiers", "server", "self")}
        assert not others & parsed


def test_an_idle_server_that_has_stored_nothing_has_an_empty_cache(
    tmp_path: Path, publish: Publish
) -> None:
    with watched(tmp_path) as there:
        publish()
        there.expect(0)


@pytest.mark.parametrize("replay_has_topic", [True, False])
def test_a_gap_is_filled_from_the_replay_in_either_framing(
    tmp_path: Path, publish: Publish, replay_has_topic: bool
) -> None:
    publisher = publish(replay_has_topic=replay_has_topic)
    with watched(tmp_path) as there:
        there.expect(0)
        publisher.say(one(1))
        publisher.say(one(2), lost=True)
        publisher.say(one(3), lost=True)
        publisher.say(one(4))
        there.expect(4)
        assert (there.source.gaps, there.source.batches_dropped) == (1, 0)


def test_a_restarted_server_begins_anew(tmp_path: Path, publish: Publish) -> None:
    publisher = publish()
    with watched(tmp_path) as there:
        there.expect(0)
        for block in range(5):
            publisher.say(one(block))
        there.expect(5)
        session = there.source.session
        publisher.close()
        wait_for(lambda: not there.source.up)
        assert there.blocks() is None
        assert there.shown("kvscope_kv_tier_stored_blocks_total", tier="device") == 5
        again = publish(dialect=BY_NAME["vllm-0.23"])
        there.expect(0)
        assert there.source.session != session
        again.say(one(7))
        there.expect(1)
        assert there.shown("kvscope_kv_tier_stored_blocks_total", tier="device") == 1
        assert there.source.batches_dropped == 0


def test_where_the_server_connects_the_source_binds(tmp_path: Path, publish: Publish) -> None:
    with watched(tmp_path, bind=True) as there:
        publisher = publish(bind=False)
        there.expect(0)
        publisher.say(one(1))
        there.expect(1)
        publisher.close()
        wait_for(lambda: not there.source.up)
        again = publish(bind=False)
        again.say(one(2), one(3))
        there.expect(2)


def test_only_the_topic_asked_for_is_read(tmp_path: Path, publish: Publish) -> None:
    publisher = publish(replay=False)
    with watched(tmp_path, replay=False, topic="kv-events") as there:
        publisher.joined()
        publisher.raw([b"other", bytes(8), b"x"])
        publisher.say(one(1))
        there.expect(1)
        assert not any(there.source.decode_errors.values())


def test_a_name_that_is_learnt_late_is_told_with_a_new_hello(
    tmp_path: Path, publish: Publish
) -> None:
    publisher = publish()
    publisher.say(one(1))
    with watched(tmp_path, engine="3") as there:
        there.expect(1)
        assert there.shown("kvscope_kv_tier_blocks", engine="3", model_name="m") is None
        there.source.model_name = "m"
        assert there.shown("kvscope_kv_tier_blocks", engine="3", model_name="m") == 1
        assert there.shown("kvscope_events_total", type="Hello") == 2
        assert there.shown("kvscope_engine_ready") is None, "the stream does not tell"


def test_the_hello_tells_names_and_nothing_else(tmp_path: Path, publish: Publish) -> None:
    publish()
    source = KvEventsSource(
        f"ipc://{tmp_path}/events", server="sglang", engine="1", clock=Clock(), model_name="m"
    )
    try:
        wait_for(lambda: source.wait(0.01) or source.up)
        taken = source.take()
        assert taken is not None
        batch, lost = taken
        (hello,) = batch.events
        assert isinstance(hello, Hello)
        assert (hello.server, hello.engine, hello.model_name) == ("sglang", "1", "m")
        assert hello.tells == ["NamesCleared", "NamesRemoved", "NamesStored"]
        assert (lost, source.session) == (0, hello.session)
        assert source.take() is None
    finally:
        source.close()


def test_a_reader_that_sleeps_does_not_lose_what_the_replay_holds(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope_exporter.sources.kv_events.reader.QUEUE_BYTES", 20_000)
    publisher = publish()
    source = KvEventsSource(
        f"ipc://{tmp_path}/events",
        replay=f"ipc://{tmp_path}/replay",
        server="vllm",
        engine="0",
        clock=Clock(),
    )
    try:
        publisher.joined()
        for block in range(2000):
            publisher.say(one(block))
        time.sleep(0.3)
        assert source._reader.queued_bytes <= 20_000
        stored = 0
        deadline = time.monotonic() + 20
        while stored < 2000 and time.monotonic() < deadline:
            source.wait(0.05)
            while (taken := source.take()) is not None:
                batch, lost = taken
                assert not lost
                stored += sum(not isinstance(event, Hello) for event in batch.events)
        assert stored == 2000
        assert source.batches_dropped == 0
        wait_for(lambda: source.state_known)
    finally:
        source.close()


def test_a_page_after_a_standstill_is_not_taken_for_known(tmp_path: Path, publish: Publish) -> None:
    publisher = publish()
    with watched(tmp_path) as there:
        there.expect(0)
        publisher.say(one(1))
        there.expect(1)
        there.source._reader._looked_ns -= STALE_NS  # as after SIGSTOP, before our thread runs
        assert not there.source.state_known
        there.expect(1)


def test_a_long_history_is_replayed_whole(tmp_path: Path, publish: Publish) -> None:
    """More messages than a server's socket holds for a reader, which drops the rest silently."""
    publisher = publish()
    for block in range(5000):
        publisher.say(one(block))
    with watched(tmp_path) as there:
        there.expect(5000)
        assert there.source.batches_dropped == 0


@pytest.mark.timed
def test_closing_takes_no_time_and_may_be_repeated(tmp_path: Path) -> None:
    sources = [
        KvEventsSource(f"ipc://{tmp_path}/{n}", server="vllm", engine="0", clock=Clock())
        for n in range(16)
    ]
    began = time.monotonic()
    for source in sources:
        source.close()
        source.close()
    assert time.monotonic() - began < 2
