"""`kvscope sidecar --config` as a process: what it watches follows the file, on SIGHUP only."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kvscope_events.wire.publisher import WirePublisher
from tests.events.producers import Producer
from tests.support.pages import sample
from tests.support.process import Process, forked_kvscope
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

OPTIONS = ("sidecar", "--port", "0", "--no-gpu")


@contextmanager
def publishing(folder: Path, *names: str) -> Iterator[dict[str, Producer]]:
    publishers = []
    producers = {}
    for name in names:
        producers[name] = Producer(name)
        publishers.append(WirePublisher(producers[name].bus, f"ipc://{folder}/{name}.sock"))
        publishers[-1].start()
        producers[name].begin()
    try:
        yield producers
    finally:
        for publisher in publishers:
            publisher.stop()


def entry(folder: Path, name: str, more: str = "") -> str:
    return f"- {{name: {name}, events: ['ipc://{folder}/{name}.sock']{more}}}\n"


def steps(url: str, name: str) -> float | None:
    page = httpx.get(f"{url}/scrape", params={"target": name}, timeout=10).text
    return sample(page, "kvscope_events_total", type="FirstToken")


def reloaded(process: Process, word: str, times: int) -> None:
    process.send(signal.SIGHUP)
    wait_for(lambda: process.text.count(word) == times, word)


def test_the_file_is_read_again_on_sighup_and_one_with_an_error_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "kvscope.yaml"
    file.write_text("servers:\n" + entry(tmp_path, "red", ", labels: {team: search}"))
    with (
        publishing(tmp_path, "red", "blue") as producers,
        forked_kvscope(*OPTIONS, "--config", str(file)) as process,
    ):
        url = process.find(r"(http://[\d.]+:\d+)")
        producers["red"].step(7)
        wait_for(lambda: steps(url, "red") == 7, "red is read")
        listed = httpx.get(f"{url}/targets").json()
        assert [entry["labels"]["team"] for entry in listed] == ["search"]

        file.write_text("servers:\n" + entry(tmp_path, "red", ", urls: x"))
        reloaded(process, "not reloaded", 1)
        own = httpx.get(f"{url}/metrics").text
        assert sample(own, "kvscope_config_last_reload_successful") == 0
        assert steps(url, "red") == 7, "the configuration before is in use"
        said = next(line for line in process.lines if "not reloaded" in line)
        assert f"{file}:2: servers[0].urls: there is no such key; did you mean url?" in said

        both = "servers:\n" + entry(tmp_path, "red") + entry(tmp_path, "blue")
        file.write_text(both + "listen: {port: 1}\n")
        reloaded(process, "reloaded " + str(file), 1)
        assert "1 added (blue), 0 rebuilt, 0 removed, 1 kept" in process.text
        wait_for(
            lambda: "a change of `listen` takes effect after a restart" in process.text, "listen"
        )
        producers["red"].step(2)
        wait_for(lambda: steps(url, "red") == 9, "red was never forgotten")
        wait_for(lambda: steps(url, "blue") == 0, "blue is read")
        own = httpx.get(f"{url}/metrics").text
        assert sample(own, "kvscope_config_last_reload_successful") == 1
        assert len(httpx.get(f"{url}/targets").json()) == 2

        process.send(signal.SIGTERM)
        assert process.wait() == 0
        assert "Traceback" not in process.text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config", "{}/none.yaml"], "none.yaml: cannot be read: No such file"),
        (["--config", "{}/bad.yaml"], "bad.yaml:1: servers: the list is empty"),
        (
            ["--config", "{}/bad.yaml", "--events", "tcp://127.0.0.1:1"],
            "--config cannot be combined",
        ),
        (["--check", "--config", "{}/bad.yaml"], "bad.yaml:1: servers: the list is empty"),
        ([], "name a server to watch"),
        (["--config", "{}/pipe"], "pipe: cannot be read: a pipe that nothing writes to"),
        (["--events", "tcp://127.0.0.1:9", "--metrics-key-file", "{}/pipe"], "nothing writes to"),
        (["--events", "tcp://127.0.0.1:9", "--web-config-file", "{}/pipe"], "nothing writes to"),
        (["--events", "tcp://127.0.0.1:9", "--ssl-certfile", "{}/pipe"], "not a file of at most"),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_command_with_one_line(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "bad.yaml").write_text("servers: []")
    os.mkfifo(tmp_path / "pipe")
    with forked_kvscope(
        *OPTIONS, *(argument.format(tmp_path) for argument in arguments)
    ) as process:
        assert process.wait() == 2
        assert says in process.text
        assert process.text.count("\n") == 1, process.text


def test_check_says_that_a_file_is_right(tmp_path: Path) -> None:
    file = tmp_path / "kvscope.yaml"
    file.write_text("servers:\n" + entry(tmp_path, "red"))
    with forked_kvscope("sidecar", "--check", "--config", str(file)) as process:
        assert process.wait() == 0
        assert process.text == f"{file}: 1 server(s), no errors\n"


def _targets(url: str) -> list[dict[str, dict[str, str]]]:
    answer: list[dict[str, dict[str, str]]] = httpx.get(f"{url}/targets", timeout=60).json()
    return answer


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
