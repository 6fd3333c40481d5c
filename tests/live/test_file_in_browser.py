"""The file of `kvscope rec export --html` in a real browser, from file:// and without a network."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app as cli
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from kvscope_exporter.state import Ledger, Steps
from tests.live.test_in_browser import CELLS, FINDINGS, FOLLOWED, SIZES, axe_rules
from tests.replay.simulated import record_stage
from tests.replay.test_html import HOSTILE, incident, write_hostile
from tests.support.chromium import Page, browsing
from tests.support.live_reader import CACHED
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.nightly, pytest.mark.slow]

AT = "document.getElementById('replay-time').textContent"
LOADED = """performance.getEntriesByType('resource').map(({ name }) => name)
  .filter((name) => !name.startsWith('data:'))"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as opened:
        opened.size(1280, 900)
        yield opened


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "incident.kvsr"
    record_stage(path, incident, num_blocks=700)
    return path


@contextmanager
def exported(page: Page, recording: Path) -> Iterator[None]:
    """Its file, open."""
    out = recording.with_suffix(".html")
    done = CliRunner().invoke(cli, ["rec", "export", str(recording), "--html", str(out)])
    assert done.exit_code == 0, done.output
    with page.at(f"file://{out}"):
        page.until(FOLLOWED)
        yield
        assert page.value(LOADED) == []
        assert page.complaints == []


def test_the_moment_moves_and_figures_and_blocks_are_those_of_the_recording(
    page: Page, recording: Path
) -> None:
    def stands_at(seconds: float) -> None:
        """The page shows the engine as the recording has it at this moment."""
        playback = Playback(RecordingFile(recording))
        playback.to(round(seconds * 1e9))
        (target,) = playback.exporter.targets
        steps = sum(target.folds[Steps].duration.counts)
        page.until(f"kvscopeLive.store.sums.steps === {steps}")
        cells = json.loads(page.value(CELLS))["cell"]
        assert cells.count(CACHED) == target.folds[Ledger].num_cached
        assert [max(0, cell - CACHED) for cell in cells] == target.folds[Ledger].blocks.ref_counts
        playback.close()

    file = RecordingFile(recording)
    with exported(page, recording):
        stands_at(file.ends_ns / 1e9)
        page.until("document.getElementById('why').textContent.includes('another process')")
        page.value("document.querySelector('#replay-marks button').click()")
        page.until("document.getElementById('why').textContent.startsWith('Nothing is wrong')")
        marked = page.value("Number(document.getElementById('replay-at').value)")
        stands_at(marked)
        page.value("document.getElementById('replay-back').click()")
        page.until(f"Number(document.getElementById('replay-at').value) < {marked}")
        stands_at(page.value("Number(document.getElementById('replay-at').value)"))
        middle = (file.begins_ns + file.ends_ns) / 2e9
        page.value(
            "(() => { const slider = document.getElementById('replay-at');"
            f"slider.value = {middle}; slider.dispatchEvent(new Event('change')); }})()"
        )
        page.until(f"Math.abs(Number(document.getElementById('replay-at').value) - {middle}) < 1")
        stands_at(page.value("Number(document.getElementById('replay-at').value)"))
        running = "[...kvscopeLive.store.sequences.values()].find((row) => row.blocks > 5)"
        page.value(f"kvscopeLive.sequences.select({running}.id)")
        page.until("document.querySelectorAll('#sequence .cell').length > 5")
        before = page.value("kvscopeLive.store.sums.steps")
        page.value("document.getElementById('replay-play').click()")
        page.until(f"kvscopeLive.store.sums.steps > {before} + 100")
        page.value("document.getElementById('replay-play').click()")
        page.until("document.getElementById('replay-play').textContent === 'Play'")
        wait_for(lambda: page.value("kvscopeLive.store.figures.length") > 60, "the strips")


def test_hostile_names_are_shown_as_text(page: Page, tmp_path: Path) -> None:
    write_hostile(tmp_path / "hostile.kvsr", HOSTILE)
    with exported(page, tmp_path / "hostile.kvsr"):
        shown = json.dumps(HOSTILE)
        page.until(f"document.getElementById('status').textContent.includes({shown})")
        page.until(f"document.querySelector('#replay-marks button').textContent.includes({shown})")
        page.until(f"document.getElementById('what').textContent.includes({shown})")
        assert page.value("document.querySelectorAll('img, iframe').length") == 0


def test_axe_finds_nothing(page: Page, recording: Path) -> None:
    rules = axe_rules()
    with exported(page, recording):
        page.value(rules)
        page.until(AT)
        for width, scheme in SIZES:
            page.size(width, 900, scheme)
            assert page.value(FINDINGS) == [], (width, scheme)
    page.size(1280, 900)
