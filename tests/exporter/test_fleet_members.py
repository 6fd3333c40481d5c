"""A fleet's sidecars over HTTP: whatever one of them answers, the others are followed."""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kvscope_exporter.clock import Clock
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.fleet.collector import FleetCollector, FleetPage
from kvscope_exporter.fleet.fleet import Fleet
from kvscope_exporter.fleet.follower import Follower
from kvscope_exporter.fleet.member import STALE_SECONDS, BearerHeader, Member, Read, reading
from kvscope_exporter.fleet.roster import (
    Find,
    Roster,
    RosterError,
    behind,
    fixed,
    listed_at,
    listed_in,
)
from kvscope_exporter.scrape.tls import Tls
from kvscope_exporter.state.fleet.projected import (
    EventsDocument,
    PoolReset,
    StepEvents,
    StoredNames,
)
from tests.exporter.test_fleet_contradictions import document, names, part
from tests.support import http_peer
from tests.support.hostile import bomb, drip, endless, head, response, serving
from tests.support.pages import sample

PATH = "/api/projection"
MSGPACK = "Content-Type: application/msgpack"
GOOD = msgspec.msgpack.encode(document(part(StoredNames(names(1, 2)))))
OTHER = msgspec.msgpack.encode(document(part(StoredNames(names(2)), session="other")))
DEEP = b"\x96" + GOOD[1:] + b"\x91" * 100_000 + b"\xc0"
VERSION_2 = msgspec.msgpack.encode(msgspec.structs.replace(document(), version=2))


class Now:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.clock = Clock(lambda: int(self.seconds * 1e9), lambda: int(self.seconds * 1e9))


def answering(body: bytes) -> Read:
    return lambda positions: body


def resident(fleet: Fleet) -> int:
    return fleet.read(lambda all_: sum(s.waterfall.holders.resident_blocks for s in all_))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(response(b"", MSGPACK), "malformed", id="empty"),
        pytest.param(response(b"<html>", MSGPACK), "malformed", id="a page"),
        pytest.param(response(GOOD[:-9], MSGPACK), "malformed", id="cut short"),
        pytest.param(response(b"\xdd\xff\xff\xff\xff", MSGPACK), "malformed", id="a huge list"),
        pytest.param(response(VERSION_2, MSGPACK), "malformed", id="another version"),
        pytest.param(response(DEEP, MSGPACK), "malformed", id="nested without end"),
        pytest.param(
            response(GOOD.replace(b"demo", b"\xff" * 4), MSGPACK), "malformed", id="not UTF-8"
        ),
        pytest.param(response(b"no", status="401 Unauthorized"), "status", id="without a key"),
        pytest.param(response(b"no", status="403 Forbidden"), "status", id="with a wrong key"),
        pytest.param(
            response(b"", "Location: http://127.0.0.1:1/", status="302 Found"),
            "redirect",
            id="elsewhere",
        ),
        pytest.param(bomb(100), "too_large", id="a bomb"),
        pytest.param(endless(head(MSGPACK), bytes(1 << 16)), "too_large", id="without end"),
    ],
)
def test_an_answer_that_cannot_be_read_is_counted_and_the_others_are_followed(
    answer: bytes, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet()
    with serving({}) as server, caplog.at_level(logging.WARNING):
        # The query differs from question to question.
        server.answers = type("Any", (dict,), {"get": lambda *_: answer})()
        bad = Member("bad", reading(server.url, Tls(), {}), fleet, Clock())
        good = Member("good", answering(GOOD), fleet, Clock())
        for one in (bad, good, bad):
            one.ask()
        waiting = [(one.name, one.answer) for one in (bad, good)]
        fleet.fold([(name, answer) for name, answer in waiting if answer is not None])
        assert bad.errors[kind] == 2
        assert sum(bad.errors.values()) == 2
        assert (bad.is_up, good.is_up) == (False, True)
    assert len(caplog.records) == 1, "once a minute"
    assert resident(fleet) == 2


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    own, other = (http_peer.make_certificate(tmp_path, name) for name in ("own", "other"))
    right, wrong = Tls(ca=str(own.file)), Tls(ca=str(other.file))
    fleet, answer = Fleet(), (200, "application/msgpack", GOOD)
    with http_peer.serving({PATH: answer}, own) as peer:
        members = [
            Member("x", reading(peer.url, tls, {}), fleet, Clock()) for tls in (right, wrong)
        ]
        for one in members:
            one.ask()
    assert [one.is_up for one in members] == [True, False]
    assert [one.errors["tls"] for one in members] == [0, 1]


def test_nothing_more_is_asked_until_an_answer_is_folded() -> None:
    """Else the next question would have the old positions, and its answer the same moments."""
    waiting: list[bool] = []

    class Watched(Fleet):
        def fold(self, documents: Sequence[tuple[str, EventsDocument]]) -> None:
            waiting.extend(one.answer is not None for one in follower.members)
            super().fold(documents)

    follower = Follower(Watched())
    follower.watch({"a": lambda: answering(GOOD)})
    (one,) = follower.members
    one.ask()
    follower.fold()
    assert waiting == [True]
    assert one.answer is None


def test_a_sidecar_that_goes_while_its_answer_is_folded_is_forgotten() -> None:
    class Slow(Fleet):
        def fold(self, documents: Sequence[tuple[str, EventsDocument]]) -> None:
            going.start()
            going.join(0.2)
            super().fold(documents)

    fleet = Slow()
    follower = Follower(fleet)
    going = threading.Thread(target=follower.watch, args=({},))
    follower.watch({"a": lambda: answering(GOOD)})
    follower.members[0].ask()
    follower.fold()
    going.join()
    assert (follower.members, fleet.replicas()) == ([], [])


def test_a_page_is_read_while_a_long_answer_is_folded_whose_sidecar_may_go_meanwhile() -> None:
    moments = [
        StepEvents(number, 1, [PoolReset(), StoredNames(names(1))]) for number in range(4_000)
    ]
    long = document(part(moments=moments, next_seq=len(moments)))
    fleet = Fleet()
    folding = threading.Thread(target=fleet.fold, args=([("a", long)],))
    folding.start()
    read = 0
    while folding.is_alive():
        read += len(fleet.replicas())
        if read == 3:
            fleet.forget("a")
    assert read >= 3, "a page waits for the whole fold"
    assert (fleet.replicas(), resident(fleet)) == ([], 0)


def test_an_answer_that_never_ends_takes_no_longer_than_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvscope_exporter.fleet.member.TIMEOUT_SECONDS", 0.3)
    fleet = Fleet()
    with serving({}) as server:
        server.answers = type("Any", (dict,), {"get": lambda *_: drip(head(MSGPACK))})()
        bad = Member("bad", reading(server.url, Tls(), {}), fleet, Clock())
        bad.ask()
        assert bad.errors["timeout"] == 1


def test_a_sidecar_that_is_cut_off_is_unknown_and_comes_back() -> None:
    now, fleet = Now(), Fleet()
    answers: list[bytes] = []

    def read(_positions: str) -> bytes:
        if not answers:
            raise FetchError("connection", "refused")
        return answers[0]

    one = Member("one", read, fleet, now.clock)

    def ask() -> int:
        one.ask()
        if one.answer is not None:
            fleet.fold([("one", one.answer)])
            one.folded()
        return resident(fleet)

    answers.append(GOOD)
    assert ask() == 2
    answers.clear()
    now.seconds += STALE_SECONDS / 2
    assert (ask(), one.is_up) == (2, True), "one answer may be late"
    now.seconds += STALE_SECONDS
    assert (ask(), one.is_up) == (0, False)
    assert fleet.replicas() == []
    assert fleet.positions("one") == {}, "it asks for everything then"
    answers.append(GOOD)
    assert (ask(), one.is_up) == (2, True)


def test_sidecars_come_and_go() -> None:
    fleet = Fleet()
    follower = Follower(fleet)
    both = {"a": lambda: answering(GOOD), "b": lambda: answering(OTHER)}
    assert follower.watch(both) == (["a", "b"], [])
    for one in follower.members:
        one.ask()
    follower.fold()
    assert resident(fleet) == 3
    assert follower.watch({"b": both["b"]}) == ([], ["a"])
    assert resident(fleet) == 1
    registry = CollectorRegistry()
    registry.register(FleetCollector(fleet, lambda: follower.members, Clock()))
    page = FleetPage(registry).render()[0].decode()
    assert sample(page, "kvscope_fleet_replicas", state="counted") == 1
    assert sample(page, "kvscope_fleet_sidecar_up", sidecar="b") == 1
    assert 'sidecar="a"' not in page
    follower.stop()


def test_a_key_is_read_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "key"
    header = BearerHeader(file)
    with pytest.raises(FetchError, match="key cannot be read"):
        dict(header)
    file.write_text("# of the sidecars\n one \n")
    assert dict(header) == {"Authorization": "Bearer one"}
    file.write_text("two")
    assert dict(header) == {"Authorization": "Bearer two"}
    file.write_text("\n")
    with pytest.raises(FetchError, match="no token"):
        dict(header)


TARGETS = [
    {"targets": ["10.0.0.1:8010", "10.0.0.1:8010", "[::1]:8010"], "labels": {"a": "b"}},
    {"targets": ["host:1"], "labels": {"__scheme__": "https"}},
]
PLACES = [
    ("10.0.0.1:8010", "http://10.0.0.1:8010"),
    ("[::1]:8010", "http://[::1]:8010"),
    ("host:1", "https://host:1"),
]


class TestRoster:
    def test_targets_for_prometheus_are_read_from_a_file_and_a_url(self, tmp_path: Path) -> None:
        file = tmp_path / "targets.json"
        file.write_text(json.dumps(TARGETS))
        assert list(listed_in(file)()) == PLACES
        with http_peer.serving({"/sd": http_peer.json(json.dumps(TARGETS))}) as peer:
            assert list(listed_at(f"{peer.url}/sd", Tls())()) == PLACES

    def test_every_address_of_a_name_is_a_sidecar(self) -> None:
        found = dict(behind("localhost", 8010, "http")())
        assert found["127.0.0.1:8010"] == "http://127.0.0.1:8010"

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{}",
            '[{"targets": "x"}]',
            '[{"targets": ["x/y"]}]',
            "[" * 100_000,
            '[{"targets": ["x:1"], "labels": {"__scheme__": "file"}}]',
        ],
    )
    def test_a_list_that_cannot_be_read_is_refused(self, content: str, tmp_path: Path) -> None:
        file = tmp_path / "targets.json"
        file.write_text(content)
        with pytest.raises(RosterError, match=str(file)):
            listed_in(file)()

    def test_the_last_list_stays_while_a_new_one_cannot_be_read(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        places = [("a", "http://a:1")]
        seen: list[dict[str, str]] = []

        def find() -> list[tuple[str, str]]:
            if not places:
                raise RosterError("list: gone")
            return places

        finds: list[Find] = [find, fixed([("b", "http://b:1")])]
        roster = Roster(finds, lambda found: seen.append(dict(found)))
        roster.look()
        places.clear()
        roster.look()
        roster.look()
        assert seen == [{"a": "http://a:1", "b": "http://b:1"}] * 3
        assert [record.message for record in caplog.records] == [
            "list: gone; 1 sidecars are known from there"
        ]

    def test_sidecars_that_cannot_be_followed_yet_are_tried_again(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        authority = tmp_path / "ca.pem"
        follower = Follower(Fleet())

        def watch(places: Mapping[str, str]) -> None:
            tls = Tls(ca=str(authority))
            follower.watch({n: partial(reading, url, tls, {}) for n, url in places.items()})

        roster = Roster([fixed([("a", "https://a:1")])], watch)
        roster.look()
        roster.look()
        assert follower.members == []
        assert len(caplog.records) == 1
        authority.write_bytes(http_peer.make_certificate(tmp_path).file.read_bytes())
        roster.look()
        assert [one.name for one in follower.members] == ["a"]

    @pytest.mark.parametrize("name", ["a..b", "a" * 64])
    def test_what_is_no_name_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"63 characters"):
            behind(name, 8010, "http")

    @pytest.mark.parametrize("url", ["", "x", "ftp://x", "http://u:p@x", "http://x:99999"])
    def test_what_is_no_url_is_refused(self, url: str) -> None:
        with pytest.raises(ValueError, match="name"):
            fixed([("name", url)])
