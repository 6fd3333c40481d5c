"""Recordings of real processes: saved over HTTP, by a signal, at the end, and after a kill."""

import signal
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import msgspec
import pytest

from kvscope_events.tenants import tenant_digest
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.records import StreamBatch, StreamGap
from kvscope_exporter.replay.playback import Playback
from tests.support.process import Process, forked_kvscope
from tests.support.waiting import wait_for

SMALL = ("--max-model-len", "2048", "--num-gpu-blocks-override", "256", "--port", "0")
SIDECAR = ("sidecar", "--no-gpu", "--port", "0", "--events", "red=tcp://127.0.0.1:1")
JSON = {"Content-Type": "application/json"}
PROMPT, USER = "once upon a time", "alice@example.org"


def url_of(process: Process) -> str:
    return process.find(r"serving \S+ at (\S+)/v1")


def complete(url: str) -> None:
    body = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "user": USER}
    assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200


def listed(url: str, headers: Mapping[str, str] | None = None) -> list[dict[str, object]]:
    answer = httpx.get(f"{url}/api/recordings", headers=headers)
    assert answer.status_code == 200
    return list(answer.json())


def finished_in(path: Path) -> float:
    """Requests that had ended at the end of a recording, by its replayed page."""
    playback = Playback(RecordingFile(path))
    playback.to(playback.file.ends_ns)
    return finished_on(playback.exporter.render()[0].decode())


def finished_on(page: str) -> float:
    lines = [each for each in page.splitlines() if each.startswith("kvscope_requests_finished")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def content_of(path: Path) -> bytes:
    """Its records, decompressed."""
    return b"".join(map(msgspec.msgpack.encode, RecordingFile(path).records()))


def saved_by(folder: Path, trigger: str) -> list[Path]:
    return sorted(folder.glob(f"saved-*-{trigger}.kvsr"))


def test_a_recording_is_saved_listed_and_fetched(tmp_path: Path) -> None:
    with forked_kvscope("engine", "serve", *SMALL) as process:
        url = url_of(process)
        assert listed(url) == []
        complete(url)
        assert httpx.post(f"{url}/api/recordings").status_code == 415  # a page of another site
        posted = httpx.post(f"{url}/api/recordings", headers=JSON)
        assert posted.status_code == 200, posted.text
        (one,) = listed(url)
        assert one == posted.json()
        assert (one["trigger"], one["server"]) == ("manual", "serve")
        fetched = httpx.get(f"{url}/api/recordings/{one['name']}")
        assert len(fetched.content) == one["bytes"]
        (tmp_path / "fetched.kvsr").write_bytes(fetched.content)
        assert finished_in(tmp_path / "fetched.kvsr") == 1
        content = content_of(tmp_path / "fetched.kvsr")
        assert tenant_digest(USER).encode() in content
        assert not any(text.encode() in content for text in (USER, PROMPT))
        for name in ("none.kvsr", "..%2f..%2fetc%2fpasswd", "%00"):
            refused = httpx.get(f"{url}/api/recordings/{name}")
            assert refused.status_code == 404, name
            assert "root:" not in refused.text
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert "Traceback" not in process.text


def test_the_past_answers_as_it_did(tmp_path: Path) -> None:
    with forked_kvscope("engine", "serve", *SMALL) as process:
        url = url_of(process)
        httpx.post(f"{url}/api/recordings", headers=JSON)  # the recording has begun
        moments = []
        for _ in range(2):
            complete(url)
            httpx.get(f"{url}/metrics")  # a page, whose moment is recorded
            answer = httpx.get(f"{url}/api/tenants").json()
            moments.append((time.time(), answer))
            time.sleep(0.2)
        httpx.get(f"{url}/live/past")  # opens what is kept
        for number, (moment, answer) in enumerate(moments, 1):
            at = {"at": f"{moment:.6f}"}
            assert finished_on(httpx.get(f"{url}/live/past/page", params=at).text) == number
            assert httpx.get(f"{url}/live/past/api/tenants", params=at).json() == answer
        first, second = (answer["engines"][0]["answer"] for _, answer in moments)
        assert first != second


def test_a_folder_has_what_a_signal_and_the_end_saved(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    with forked_kvscope("engine", "serve", *SMALL, "--record-dir", str(folder)) as process:
        url = url_of(process)
        complete(url)
        process.send(signal.SIGUSR2)
        wait_for(lambda: saved_by(folder, "manual"), "saved by the signal")
        complete(url)
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    (manual,), (ended,) = saved_by(folder, "manual"), saved_by(folder, "exit")
    assert [finished_in(manual), finished_in(ended)] == [1, 2]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {*folder.iterdir()} == {manual, ended}, "segments are gone"


def test_a_killed_process_leaves_a_recording_to_the_next_one(tmp_path: Path) -> None:
    with forked_kvscope("engine", "serve", *SMALL, "--record-dir", str(tmp_path)) as process:
        complete(url_of(process))
        time.sleep(2.5)  # written once a second
        process.send(signal.SIGKILL)
        process.wait()
    with forked_kvscope(*SIDECAR, "--record-dir", str(tmp_path)) as process:
        url = process.find(r"targets: (\S+)/targets")
        (one,) = listed(url)
        assert one["trigger"] == "killed"
        assert len(httpx.get(f"{url}/api/recordings/{one['name']}").content) == one["bytes"]
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    (killed,) = saved_by(tmp_path, "killed")
    assert finished_in(killed) == 1


def test_a_sidecar_that_was_stopped_records_what_the_engine_did_meanwhile(tmp_path: Path) -> None:
    endpoint, folder = f"ipc://{tmp_path}/red.sock", tmp_path / "recordings"
    watching = ("sidecar", "--no-gpu", "--port", "0", "--events", f"red={endpoint}")
    with (
        forked_kvscope("engine", "serve", *SMALL, "--event-endpoint", endpoint) as engine,
        forked_kvscope(*watching, "--record-dir", str(folder)) as process,
    ):
        url = url_of(engine)
        complete(url)
        page = process.find(r"targets: (\S+)/targets") + "/scrape?target=red"
        wait_for(lambda: finished_on(httpx.get(page).text) == 1, "the first is on the page")
        process.send(signal.SIGSTOP)
        complete(url)
        time.sleep(7)  # longer than an engine may be silent
        complete(url)
        process.send(signal.SIGCONT)
        wait_for(lambda: finished_on(httpx.get(page).text) == 3, "the others are on the page")
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    (ended,) = saved_by(folder, "exit")
    assert finished_in(ended) == 3
    records = [
        each for each in RecordingFile(ended).records() if isinstance(each, StreamBatch | StreamGap)
    ]
    first = next(number for number, each in enumerate(records) if isinstance(each, StreamBatch))
    assert not [each for each in records[first:] if isinstance(each, StreamGap)]


def test_one_of_several_servers_is_named_and_a_key_is_wanted(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o600)
    second = ("--events", "blue=tcp://127.0.0.1:2", "--metrics-key-file", str(keys))
    with forked_kvscope(*SIDECAR, *second) as process:
        url = process.find(r"targets: (\S+)/targets")
        key = {"Authorization": "Bearer secret"}
        assert httpx.get(f"{url}/api/recordings").status_code == 401
        assert httpx.post(f"{url}/api/recordings?target=red", headers=JSON).status_code == 401
        unnamed = httpx.post(f"{url}/api/recordings", headers={**JSON, **key})
        assert unnamed.status_code == 400
        assert "blue" in unnamed.text
        unknown = httpx.post(f"{url}/api/recordings?target=green", headers={**JSON, **key})
        assert unknown.status_code == 404
        posted = httpx.post(f"{url}/api/recordings?target=red", headers={**JSON, **key})
        assert posted.json()["server"] == "red"
        assert len(listed(url, key)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep", "soon"], "--keep 'soon' is not a duration"),
        (["--keep", "1s"], "--keep 1s: expected 10s to 31d"),
        (["--keep-bytes", "1KiB"], "--keep-bytes 1KiB: expected at least 1MiB"),
        (["--record-dir", "/proc/nowhere"], "--record-dir /proc/nowhere: "),
        (["--keep", "0", "--record-dir", "x"], "--record-dir has nothing to hold"),
    ],
)
def test_options_that_cannot_be_are_one_line(options: list[str], message: str) -> None:
    with forked_kvscope(*SIDECAR, *options) as process:
        assert process.wait() == 2
    assert message in process.text
    assert len(process.lines) == 1


def test_nothing_is_recorded_where_that_is_disabled() -> None:
    with forked_kvscope(*SIDECAR, "--keep", "0") as process:
        url = process.find(r"targets: (\S+)/targets")
        assert httpx.get(f"{url}/api/recordings").status_code == 404
