"""`kvscope export --html`: one file that shows what the recording says, and runs nothing."""

import re
from bisect import bisect_right
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from exporter.flight.reader import RecordingFile
from exporter.flight.records import Entered, Marked, Record
from exporter.fold import Ledger
from exporter.live.cells import CACHED, RESERVED
from exporter.playback.playback import Playback
from kvscope.cli.app import app
from kvscope.exporting.block_map import MOST_SQUARES, block_map
from kvscope.exporting.charts import ticks
from kvscope_events.events import Batch, StepCompleted
from tests.events.producers import SNAPSHOT, hello
from tests.playback.simulated import (
    BEGINS_NS,
    batches_of,
    heard,
    opened,
    record_stage,
    took,
    write_segment,
)
from tests.why.stage import GIB, Stage, chat

SECOND = 10**9
HOSTILE = "</style><script>alert(1)</script><img src=//evil.example onerror='alert(1)'>\x1b[2J\x00"
SHOWN = HOSTILE.replace("\x1b", "\\x1b").replace("\x00", "\\x00")
TOP, BOTTOM, LEFT, RIGHT = 10, 146, 52, 510


class Page(HTMLParser):
    """The tags, attributes and texts of a document."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.lines: dict[tuple[str, str], str] = {}
        """Paths by chart and class."""
        self._chart = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        given = dict(attrs)
        if tag == "svg":
            self._chart = given["aria-label"] or ""
        if tag == "path":
            self.lines[self._chart, given["class"] or ""] = given["d"] or ""

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def export(recording: Path, folder: Path, *arguments: str) -> Page:
    out = folder / "report.html"
    run("export", str(recording), "--html", str(out), *arguments)
    return Page(out)


def incident(stage: Stage) -> None:
    stage.play(chat(1, 150), 150)
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    assert stage.recorder is not None
    stage.recorder.mark("out_of_memory", "a step ran out of device memory")
    stage.play(chat(2, 40), 40)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reported") / "incident.kvsr"
    record_stage(path, incident, num_blocks=700)
    return path


@pytest.fixture(scope="module")
def page(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return export(recording, tmp_path_factory.mktemp("report"))


def test_it_says_what_why_says(recording: Path, page: Page) -> None:
    answer = msgspec.json.decode(run("why", str(recording), "--json").stdout)
    why = answer["engines"][0]["answer"]
    assert why["chain"][0]["kind"] == "neighbour"
    for clause in why["chain"]:
        assert clause["text"] in page.text
    assert f"[cause, confidence {why['confidence']}]" in page.text
    assert f"Do: {why['remedy']}" in page.text
    assert "bytes 7.2 GiB" in page.text


def test_the_map_has_each_block_of_the_moment(recording: Path, tmp_path: Path) -> None:
    page = export(recording, tmp_path, "--at", "+100s")
    playback = Playback(RecordingFile(recording))
    playback.to(playback.file.begins_ns + 100 * 10**9)
    (target,) = playback.exporter.targets
    ledger = target.folds[Ledger]
    shared = sum(references > 1 for references in ledger.blocks.ref_counts)
    counts = {
        "free": ledger.num_free,
        "cached": ledger.num_cached,
        "active": ledger.num_active - shared,
        "shared": shared,
        "reserved": ledger.reserved,
    }
    playback.close()
    assert sum(counts.values()) == ledger.num_blocks
    shown = dict(re.findall(r"^(free|cached|active|shared|reserved) ([\d,]+)$", page.text, re.M))
    assert shown == {state: f"{number:,}" for state, number in counts.items() if number}


def test_a_square_of_a_large_map_is_most_of_several_blocks() -> None:
    cells = bytes([RESERVED]) + bytes([CACHED]) * (3 * MOST_SQUARES) + bytes([CACHED + 2]) * 8
    figure = block_map("Blocks", cells)
    texts = [*figure[0].itertext()]
    assert texts == [
        "Blocks; a square is most of 4 blocks",
        *(f"cached {3 * MOST_SQUARES:,}", "shared 8", "reserved 1"),
    ]
    drawn = {path.get("class"): path.get("d", "").count("M") for path in figure.iter("path")}
    assert drawn.keys() == {"squares c3", "squares c4"}, "one reserved block is not most of four"


def test_another_moment_has_another_cause(recording: Path, tmp_path: Path) -> None:
    page = export(recording, tmp_path, "--at", "+100s")
    assert "Nothing is wrong" in page.text
    result = CliRunner().invoke(
        app, ["export", str(recording), "--html", str(tmp_path / "x.html"), "--at", "+9h"]
    )
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "--at" in result.stderr


def test_charts_have_the_values_of_the_events(recording: Path, page: Page) -> None:
    file = RecordingFile(recording)
    times, running = [], []
    for batch in batches_of(recording):
        for event in batch.events:
            if isinstance(event, StepCompleted):
                times.append(batch.wall_ns)
                running.append(event.requests_running)
    points = re.findall(r"([\d.]+) ([\d.]+)", page.lines["Requests", "line c0"])
    assert len(points) == 121
    most = next(float(text) for text in page.texts[page.texts.index("waiting") + 3 :])
    equal = 0
    for x, y in points:
        share = (float(x) - LEFT) / (RIGHT - LEFT)
        at_ns = file.begins_ns + share * (file.ends_ns - file.begins_ns)
        value = (BOTTOM - float(y)) / (BOTTOM - TOP) * most
        # A place is rounded to the tenth of a pixel, which is some steps.
        near = range(
            bisect_right(times, at_ns - SECOND // 2), bisect_right(times, at_ns + SECOND // 2)
        )
        equal += any(abs(value - running[place]) < 0.2 for place in near) or not near
    assert equal >= len(points) - 3, "a request may end between two steps"
    assert len(set(points)) > 60


def test_memory_of_the_gpu_adds_up(page: Page) -> None:
    place = page.texts.index("GPU 0")
    rows = dict(zip(page.texts[place + 1 :: 2], page.texts[place + 2 :: 2], strict=False))
    assert rows["other processes"] == "7.2 GiB"
    assert rows["total"] == "24.0 GiB"


def test_it_loads_nothing_and_runs_nothing(page: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object", "form", "a"} & set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not {"src", "href", "srcset", "action", "style"} & names
    assert not [name for name in names if name.startswith("on")]
    policy = next(value for name, value in page.attributes if name == "content")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    style = next(text for text in page.texts if "color-scheme" in text)
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_hostile_names_are_text(tmp_path: Path) -> None:
    def batch(seq: int, *events: object) -> Batch:
        at_ns = seq * SECOND
        return Batch(seq, at_ns, list(events), BEGINS_NS + at_ns, at_ns)  # type: ignore[arg-type]

    engine = msgspec.structs.replace(
        hello(HOSTILE, ("PoolSnapshot", "StepCompleted")), server_version=HOSTILE
    )
    records: list[Record] = [
        opened(server=HOSTILE, settings={HOSTILE: HOSTILE}),
        Entered(0, "inprocess", "", 0),
        took(batch(0, engine, SNAPSHOT)),
        heard(0),
        took(batch(1)),
        Marked(SECOND, BEGINS_NS + SECOND, HOSTILE, HOSTILE),
    ]
    write_segment(tmp_path / "hostile.kvsr", records, ends_ns=BEGINS_NS + 10 * SECOND)
    page = export(tmp_path / "hostile.kvsr", tmp_path)
    assert "script" not in page.tags
    assert "img" not in page.tags
    for text in (SHOWN, f"{SHOWN}: {SHOWN}", f"recorder: {SHOWN}", f"kvscope {SHOWN}, {SHOWN}"):
        assert text in page.texts


@pytest.mark.parametrize("seconds", [0, 1, 59, 3600, 86400 * 30])
def test_times_of_an_axis_are_few_and_inside(seconds: int) -> None:
    labels = ticks(BEGINS_NS, BEGINS_NS + seconds * SECOND)
    assert len(labels) <= 6
    assert all(BEGINS_NS <= at_ns <= BEGINS_NS + seconds * SECOND for at_ns, _ in labels)
