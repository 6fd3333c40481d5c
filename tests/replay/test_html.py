"""`kvscope rec export --html`: the live page in one file, with what the recording says inside."""

import re
import zlib
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.export import moments
from kvscope_events.events import Batch
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.records import Mark, Record, StreamStart
from kvscope_exporter.replay.playback import Playback
from kvscope_exporter.state import Ledger, Steps
from tests.events.producers import SNAPSHOT, hello
from tests.replay.simulated import (
    BEGINS_NS,
    heard,
    opened,
    record_stage,
    took,
    write_segment,
)
from tests.support.live_reader import LiveReader
from tests.why.stage import GIB, Stage, chat

SECOND = 10**9
HOSTILE = "</script><script>alert(1)</script><img src=//evil.example onerror='alert(1)'>\x1b[2J\x00"
ENGINE = "demo/0"


class Page(HTMLParser):
    """The tags and attributes of a file, and the recording inside."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = path.read_text()
        self.title = ""
        self.feed(self.text)
        place = '<script type="application/json" id="recording">'
        self.index = msgspec.json.decode(self.text.partition(place)[2].partition("</script>")[0])
        self.moments = re.findall('class="moment">([^<]*)</script>', self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "title" and not self.title:
            self.title = data

    def at(self, seconds: float) -> tuple[dict[str, Any], LiveReader]:
        """All that the page knows of a moment, and the engine's snapshot of it."""
        whole = zlib.decompress(b64decode(self.moments[self.index["moments"].index(seconds)]))
        end = 4 + int.from_bytes(whole[:4], "little")
        document = msgspec.json.decode(whole[4:end])
        place = document["engines"][ENGINE]
        return document, LiveReader(whole[end:][place["begin"] : place["end"]])

    @property
    def opens(self) -> float:
        return float(self.index["status"]["at"])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def export(recording: Path, folder: Path, *arguments: str) -> Page:
    out = folder / "page.html"
    result = run("rec", "export", str(recording), "--html", str(out), *arguments)
    assert result.exit_code == 0, result.output
    return Page(out)


def incident(stage: Stage) -> None:
    stage.play(chat(1, 150), 150)
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    assert stage.recorder is not None
    stage.recorder.mark("out_of_memory", "a step ran out of device memory")
    stage.play(chat(2, 40), 40)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "incident.kvsr"
    record_stage(path, incident, num_blocks=700)
    return path


@pytest.fixture(scope="module")
def page(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return export(recording, tmp_path_factory.mktemp("page"))


def test_it_opens_where_why_looks_and_says_the_same(recording: Path, page: Page) -> None:
    document, _ = page.at(page.opens)
    (said,) = msgspec.json.decode(run("why", str(recording), "-o", "json").stdout)["engines"]
    (told,) = document["answers"]["why"]["engines"]
    assert told["answer"]["chain"][0]["kind"] == "neighbour"
    assert told["answer"] == said["answer"]
    assert 'component="other_processes"' in document["metrics"]


def test_each_moment_is_as_the_recording_has_it(recording: Path, page: Page) -> None:
    playback = Playback(RecordingFile(recording))
    for number in range(3, len(page.moments), 20):
        seconds = page.index["moments"][number]
        playback.to(round(seconds * 1e9))
        (target,) = playback.exporter.targets
        ledger = target.folds[Ledger]
        document, snapshot = page.at(seconds)
        assert snapshot.references == ledger.blocks.ref_counts
        steps = sum(target.folds[Steps].duration.counts)
        assert page.index["figures"][number][ENGINE]["steps"] == steps
        for name, told in document["engines"][ENGINE]["sequences"].items():
            blocks = sum(len(table) for table in told["tables"].values())
            assert blocks == snapshot.sequences[int(name)]["blocks"]
    playback.close()


def test_marks_and_the_moment_that_is_asked_for_are_among_the_moments(
    recording: Path, tmp_path: Path
) -> None:
    page = export(recording, tmp_path, "--at", "+100s")
    index = page.index
    assert page.opens == pytest.approx(index["status"]["begins"] + 100)
    ((marked, trigger, _),) = index["status"]["marks"]
    assert trigger == "out_of_memory"
    assert {page.opens, marked, index["status"]["begins"], index["status"]["ends"]} <= set(
        index["moments"]
    )
    assert index["moments"] == sorted(set(index["moments"]))
    document, _ = page.at(page.opens)
    assert "Nothing is wrong" in document["answers"]["why"]["engines"][0]["answer"]["sentence"]


def test_a_moment_outside_the_recording_is_one_line(recording: Path, tmp_path: Path) -> None:
    result = run("rec", "export", str(recording), "--html", str(tmp_path / "x.html"), "--at", "+9h")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "--at" in result.stderr


def test_a_file_that_would_be_too_large_has_fewer_moments(
    recording: Path, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = len("".join(page.moments)) // 3
    monkeypatch.setattr(moments, "MOST_BYTES", most)
    smaller = export(recording, tmp_path)
    assert len("".join(smaller.moments)) <= most
    assert len(smaller.moments) > 20
    assert smaller.opens in smaller.index["moments"]
    assert smaller.index["status"]["marks"][0][0] in smaller.index["moments"]
    monkeypatch.setattr(moments, "MOST_BYTES", 1000)
    result = run("rec", "export", str(recording), "--html", str(tmp_path / "none.html"))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert not (tmp_path / "none.html").exists()


def test_it_loads_nothing_and_nothing_without_its_nonce_runs(page: Page) -> None:
    given = dict(page.attributes)
    loaded = [value for name, value in page.attributes if name in ("src", "href")]
    assert [value.partition(":")[0] for value in loaded] == ["data"]
    assert not [name for name in given if name.startswith("on") or name == "style"]
    policy = next(value for name, value in page.attributes if value.startswith("default-src"))
    own = f"'nonce-{given['nonce']}'"
    assert policy == f"default-src 'none'; script-src {own}; style-src {own}; img-src data:"
    assert len(own) > 20


def test_hostile_names_are_no_markup(tmp_path: Path) -> None:
    write_hostile(tmp_path / "hostile.kvsr", HOSTILE)
    hostile = export(tmp_path / "hostile.kvsr", tmp_path)
    write_hostile(tmp_path / "harmless.kvsr", "harmless")
    harmless = export(tmp_path / "harmless.kvsr", tmp_path)
    assert hostile.tags == harmless.tags
    names = [[name for name, _ in each.attributes] for each in (hostile, harmless)]
    assert names[0] == names[1]
    assert hostile.title.startswith("</script><script>alert(1)")
    assert hostile.index["status"]["marks"][0][1:] == [HOSTILE, HOSTILE]
    assert hostile.index["overview"]["servers"][0]["title"] == HOSTILE


def write_hostile(path: Path, name: str) -> None:
    """A recording in which this is the name of everything."""

    def batch(seq: int, *events: object) -> Batch:
        at_ns = seq * SECOND
        return Batch(seq, at_ns, list(events), BEGINS_NS + at_ns, at_ns)  # type: ignore[arg-type]

    engine = msgspec.structs.replace(
        hello(name, ("PoolSnapshot", "StepCompleted")), server_version=name
    )
    records: list[Record] = [
        opened(server=name, settings={name: name}),
        StreamStart(0, "inprocess", "", 0),
        took(batch(0, engine, SNAPSHOT)),
        heard(0),
        took(batch(1)),
        Mark(SECOND, BEGINS_NS + SECOND, name, name),
    ]
    write_segment(path, records, ends_ns=BEGINS_NS + 10 * SECOND)
