"""`kvscope top` beside a real `kvscope serve` under load, which is killed and started again."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.process import Process, forked_kvscope
from tests.top.tmux import Screen, screen, top

pytestmark = [pytest.mark.tmux, pytest.mark.nightly]
SERVES = r"serving \S+ at (\S+)/v1"
LOAD = ("load", "mix", "--duration", "300", "--concurrency", "32", "--sessions", "16")


def free_port() -> int:
    """A port that a server gives up and takes again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def loaded(port: int) -> Iterator[Process]:
    """A server whose pool is too small for its load."""
    server = ("serve", "--port", str(port), "--num-gpu-blocks-override", "200")
    limits = ("--max-model-len", "1024", "--max-num-seqs", "16")
    with forked_kvscope(*server, *limits) as serving:
        serving.find(SERVES)
        load = (*LOAD, "--url", f"http://127.0.0.1:{port}", "--max-tokens", "120", "--ignore-eos")
        with forked_kvscope(*load):
            yield serving


def json_of(url: str) -> dict[str, float]:
    done = subprocess.run(
        [*top(url, "--json", "--interval", "1")], capture_output=True, text=True, check=True
    )
    headline: dict[str, float] = json.loads(done.stdout)["servers"][0]["engines"][0]["headline"]
    return headline


def pressed(shown: Screen) -> str:
    """The screen once the load has preempted a sequence."""
    shown.wait("1 Preemptions")
    shown.wait_without("No preemption so far.")
    return shown.wait(" resumed")


def test_a_killed_server_is_old_and_a_new_one_goes_on() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with screen(80, 24) as small, screen(200, 60) as large:
        with loaded(port) as server:
            for shown in (small, large):
                shown.run(*top(url, "--interval", "1"))
            assert "2 Sequences" in pressed(small)
            small.wait("▲")
            wide = pressed(large)
            for title in ("What if", "Prefixes", "Tenants", "Memory", "Why"):
                assert title in wide
            assert "◀ you are here" in large.wait("◀ you are here")
            headline = json_of(url)
            assert headline["usable_blocks"] == 200
            assert headline["decoded_tokens_per_second"] > 0
            server.send(signal.SIGKILL)
            for shown in (small, large):
                shown.wait("No answer since")
                shown.wait("OLD, of")
                text = shown.wait("Connection refused")  # the first failure may be a reset
                assert "1 Preemptions" in text
        with loaded(port):
            for shown in (small, large):
                text = shown.wait("back since")
                assert "OLD" not in text
            pressed(small)
        small.press("q")
        small.wait_without("q quit")
        large.press("C-c")
        large.wait_without("q quit")


def test_the_page_and_the_screen_agree() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with forked_kvscope("serve", "--port", str(port)) as serving:
        serving.find(SERVES)
        done = subprocess.run(
            [sys.executable, "-m", "kvscope", "top", url, "--once", "--interval", "0.2"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.startswith("✔ Nothing is wrong")
    assert "No preemption so far." in done.stdout
    assert "No sequence has been seen yet." in done.stdout
