"""Every command that takes a recording takes every recording: one that a sidecar saved by itself,
and one that `kvscope rec save` wrote of the same stream."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.stream_file import StreamFile
from kvscope_exporter.replay.source import ReplayedSource
from tests.replay.simulated import batches_of, record_chat

SECONDS = 90


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recordings")
    saved, stream = folder / "saved.kvsr", folder / "stream.kvsr"
    record_chat(saved, SECONDS, num_blocks=60, rate=2)
    source = ReplayedSource("wire", "ipc:///run/kvscope/qwen.sock", 0)
    source.state_known = True
    batches = list(batches_of(saved))
    now_ns = batches[0].arrived_ns
    ahead_ns = batches[0].wall_ns - batches[0].time_ns
    with StreamFile(
        stream, source, 1 << 30, Clock(lambda: now_ns, lambda: now_ns + ahead_ns)
    ) as recording:
        for batch in batches:
            now_ns = source.last_message_ns = batch.arrived_ns
            assert recording.add(batch, 0)
            recording.write()
    return {"saved": saved, "stream": stream}


@pytest.fixture(params=["saved", "stream"])
def recording(recordings: dict[str, Path], request: pytest.FixtureRequest) -> Path:
    return recordings[request.param]


def kvscope(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rec", "play", "{}"), "s), "),
        (("rec", "play", "{}", "--at", "-20s"), "kvscope_kv_blocks{"),
        (("why", "{}"), "At "),
        (("top", "{}", "--once"), "demo"),
        (("diff", "{}", "{}"), "same"),
        (("whatif", "{}"), "a pool of 60 blocks"),
        (("whatif", "{}", "--replicas", "2"), "kv-aware"),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, tuple) else "",
)
def test_it_is_read(recording: Path, arguments: tuple[str, ...], says: str) -> None:
    result = kvscope(*(each.format(recording) for each in arguments))
    assert result.exit_code == 0, result.output
    assert says in result.stdout


@pytest.mark.parametrize("form", ["openmetrics", "perfetto", "html"])
def test_it_is_exported(recording: Path, form: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = kvscope("rec", "export", recording, f"--{form}", out)
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 10_000


def test_the_page_of_a_stream_alone_has_all_that_comes_from_its_events(
    recordings: dict[str, Path],
) -> None:
    def pool(path: Path) -> list[str]:
        page = kvscope("rec", "play", path, "--at", "-20s").stdout
        lines = [line for line in page.splitlines() if line.startswith("kvscope_prefix_cache_")]
        return [f"{line.partition('{')[0]} {line.rpartition(' ')[2]}" for line in lines]

    assert len(pool(recordings["stream"])) > 20
    assert pool(recordings["stream"]) == pool(recordings["saved"])


@pytest.mark.promtool
def test_rules_are_not_tried_on_a_stream_without_pages(recordings: dict[str, Path]) -> None:
    result = kvscope("alerts", "backtest", recordings["stream"])
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "stream.kvsr: it has the events of a stream alone" in result.stderr
