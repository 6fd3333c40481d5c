"""Readings of a server's own page are on a replayed page as they were, of every kind of server."""

import socket
from pathlib import Path

import pytest

from kvscope_events.events import FirstToken
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from kvscope_exporter.scrape import TABLES, PageReader
from kvscope_exporter.sidecar.socket_folder import SocketFolder
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.stream import hello
from tests.replay.recorded import lines_of, make_recorder, save
from tests.scrape.answers import answering, page
from tests.scrape.test_front_end import SECOND, TELLS, observed
from tests.scrape.test_tables import CASES
from tests.support.pages import sample

FIRST_TOKENS = "kvscope_time_to_first_token_seconds_count"
NOTHING = b""
"""An answer of a server that is not there."""


def replayed(path: Path) -> list[bytes]:
    playback = Playback(RecordingFile(path))
    pages = []
    for number in range(len(playback.index.pages)):
        playback.to_page(number)
        pages.append(playback.exporter.render()[0])
    return pages


@pytest.mark.parametrize("kind", TABLES)
def test_a_server_known_by_its_page_alone_is_the_same_again(
    kind: ServerKind, tmp_path: Path
) -> None:
    answers = [NOTHING, page(b"<html>")]
    for case in CASES:
        if case.kind == kind:
            answers += [page(case.page.encode()), NOTHING]
    now_ns, served = 10**15, list[bytes]()
    clock = Clock(lambda: now_ns, lambda: now_ns + 10**18)
    recorder = make_recorder(None, clock=clock)

    def answer(connection: socket.socket) -> None:
        connection.sendall(answers[len(served)])

    with answering(answer) as url:
        reader = PageReader(url, kind, clock=clock, model_name="given")
        exporter = Exporter([], readers=[reader], clock=clock, process=False, recorder=recorder)
        folder = SocketFolder(f"ipc://{tmp_path}/*", exporter, pytest.fail, clock)
        folder.scan()  # its observer never came
        exporter.attach(folder)
        for _ in answers:
            now_ns += 5 * SECOND
            served.append(exporter.render()[0])
            recorder.write()
        exporter.stop()
    save(recorder, tmp_path / "page.kvsr")
    assert list(map(lines_of, replayed(tmp_path / "page.kvsr"))) == list(map(lines_of, served))
    assert sample(served[0].decode(), "kvscope_source_up", source="page") == 0
    assert sample(served[2].decode(), "kvscope_source_up", source="page") == 1
    unheard = [sample(text.decode(), "kvscope_source_up", source="wire") for text in served[:3]]
    assert unheard == [None, None, 0], "once it takes requests"
    assert any(b'{engine="' in text for text in served)


def test_a_page_beside_events_fails_and_returns_as_it_did(tmp_path: Path) -> None:
    recorder = make_recorder(None)
    with observed(recorder=recorder) as engine:
        served = []
        for is_up in (False, True, True, False, True):
            engine.is_up = is_up
            served.append(engine.page().encode())
            recorder.write()
    save(recorder, tmp_path / "beside.kvsr")
    assert list(map(lines_of, replayed(tmp_path / "beside.kvsr"))) == list(map(lines_of, served))
    first_tokens = [sample(text.decode(), FIRST_TOKENS) for text in served]
    assert first_tokens == [None, 4, 4, None, 4]


def test_a_segment_alone_knows_what_the_front_end_told_before_it(tmp_path: Path) -> None:
    recorder = make_recorder(None)
    with observed(recorder=recorder) as engine:
        engine.is_up = True
        engine.page()
        engine.is_up = False
        recorder.rotate()
        engine.put(hello(server="vllm", model_name="m", tells=TELLS), FirstToken(2, SECOND))
        served = engine.page()
        recorder.rotate()
    last = tmp_path / "last.kvsr"
    last.write_bytes(recorder.ring.segments[-1].read())
    (again,) = replayed(last)
    assert sample(served, FIRST_TOKENS) is None
    assert sample(again.decode(), "kvscope_events_total", type="FirstToken") == 1
    assert sample(again.decode(), FIRST_TOKENS) is None
