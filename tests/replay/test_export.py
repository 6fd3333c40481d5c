"""`kvscope rec export --openmetrics`: a Prometheus shows what it never scraped."""

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from tests.replay.recorded import OF_THIS_PROCESS, record_load
from tests.support.prometheus import prometheus_with


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "load.kvsr"
    record_load(path, seconds=4, seed=3)
    return path


def export(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rec", "export", *arguments])


def test_series_have_every_page_once_and_in_order(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "load.om"
    result = export(str(recording), "--openmetrics", str(out), "--step", "0.5")
    assert result.exit_code == 0, result.output
    *lines, end = out.read_text().splitlines()
    assert end == "# EOF"
    series: dict[str, list[tuple[float, str]]] = {}
    for line in lines:
        if not line.startswith("# "):
            key, value, moment = line.rsplit(" ", 2)
            series.setdefault(key, []).append((float(moment), value))
    moments = [moment for moment, _ in series['up{instance="llama",job="kvscope"}']]
    assert moments == sorted(set(moments))
    assert len(moments) > 5
    for samples in series.values():
        assert [moment for moment, _ in samples] == sorted({moment for moment, _ in samples})
    playback = Playback(RecordingFile(recording))
    playback.to(round(moments[-1] * 1e9))
    last = {key: value for key, samples in series.items() for at, value in samples[-1:]}
    number = 0
    for family in playback.exporter.registry.collect():
        if family.name.startswith(OF_THIS_PROCESS):
            continue
        for sample in family.samples:
            labels = {"job": "kvscope", "instance": "llama", **sample.labels}
            inside = ",".join(f'{name}="{labels[name]}"' for name in sorted(labels))
            assert float(last[f"{sample.name}{{{inside}}}"]) == sample.value
            number += 1
    assert number > 300


@pytest.mark.prometheus
@pytest.mark.promtool
def test_a_prometheus_shows_the_recorded_past(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "load.om"
    label = ("--label", "cluster=eu-1", "--label", "instance=10.0.0.7:8010")
    result = export(str(recording), "--openmetrics", str(out), "--step", "0.5", *label)
    assert result.exit_code == 0, result.output
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(out)]
    subprocess.run([*command, str(tmp_path / "data")], check=True, capture_output=True)
    file = RecordingFile(recording)
    moment = file.ends_ns // 10**9
    playback = Playback(file)
    playback.to(moment * 10**9)
    page = playback.exporter.render()[0].decode().splitlines()
    steps = next(line for line in page if line.startswith("kvscope_step_duration_seconds_count"))
    where = '{cluster="eu-1",instance="10.0.0.7:8010",job="kvscope"}'
    with prometheus_with("scrape_configs: []\n", tmp_path) as running:
        query = f"kvscope_step_duration_seconds_count{where} @ {moment}"
        assert running.ask(query) == [float(steps.rpartition(" ")[2])]
        assert running.ask(f"up{where} @ {moment}") == [1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label", "9=x"], "--label '9=x': expected NAME=VALUE"),
        (["--label", "cluster"], "--label 'cluster': expected NAME=VALUE"),
        (["--step", "3600"], "shorter than --step"),
        (
            ["--step", "1", "--openmetrics", "/nonexistent/x.om"],
            "--openmetrics /nonexistent/x.om: No such file",
        ),
    ],
)
def test_what_cannot_be_written_is_one_line(
    recording: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = export(str(recording), "--openmetrics", str(tmp_path / "x.om"), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_foreign_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.kvsr").write_bytes(b"no recording")
    result = export(str(tmp_path / "x.kvsr"), "--openmetrics", str(tmp_path / "x.om"))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
