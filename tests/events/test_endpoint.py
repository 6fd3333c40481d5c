"""Endpoints and run directories: what is refused, in one line that says what to do."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kvscope_events.bus import EventBus
from kvscope_events.wire.endpoint import EndpointError, parse_endpoint
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.run_directory import connectable, run_directory, run_endpoint


def publisher(endpoint: str) -> WirePublisher:
    return WirePublisher(EventBus(), endpoint)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    own = tmp_path / "run"
    own.mkdir(mode=0o700)
    return own


@pytest.mark.parametrize(
    ("text", "address", "path"),
    [
        ("ipc:///run/kvscope/a.sock", "ipc:///run/kvscope/a.sock", "/run/kvscope/a.sock"),
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5557", None),
        ("tcp://localhost:5557", "tcp://127.0.0.1:5557", None),
        ("tcp://127.9.9.9:0", "tcp://127.9.9.9:0", None),
        ("tcp://[::1]:5557", "tcp://[::1]:5557", None),
    ],
)
def test_endpoints_of_this_machine_are_taken(text: str, address: str, path: str | None) -> None:
    assert parse_endpoint(text)[:2] == (address, path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not an endpoint"),
        ("/run/kvscope/a.sock", "not an endpoint"),
        ("inproc://a", "not an endpoint"),
        ("ipc://a.sock", "not the absolute path"),
        ("ipc://@abstract", "not the absolute path"),
        ("ipc:///run/kvscope/", "not the absolute path"),
        ("ipc:///" + "a" * 107, "the path has 108 bytes, a unix socket takes 107"),
        ("tcp://127.0.0.1", "not HOST:PORT"),
        ("tcp://:5557", "not HOST:PORT"),
        ("tcp://127.0.0.1:http", "not HOST:PORT"),
        ("tcp://127.0.0.1:65536", "not HOST:PORT"),
        ("tcp://0.0.0.0:5557", "0.0.0.0 is not a loopback address"),
        ("tcp://*:5557", "is not a loopback address"),
        ("tcp://10.0.0.1:5557", "10.0.0.1 is not a loopback address"),
        ("tcp://example.org:5557", "example.org is not a loopback address"),
    ],
)
def test_other_endpoints_are_refused_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(EndpointError) as refused:
        parse_endpoint(text)
    assert problem in str(refused.value)
    assert "use " in refused.value.remedy
    assert "\n" not in str(refused.value)


def test_a_remote_address_is_taken_where_it_is_allowed() -> None:
    assert parse_endpoint("tcp://10.0.0.1:5557", allow_remote=True).address == "tcp://10.0.0.1:5557"


def test_the_run_directory_is_configured_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSCOPE_RUN_DIR", "/one")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/two")
    assert run_directory() == "/one"
    monkeypatch.delenv("KVSCOPE_RUN_DIR")
    assert run_endpoint("engine-0") == "ipc:///two/kvscope/engine-0.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert run_directory() == f"/tmp/kvscope-{os.getuid()}"


def test_a_missing_directory_is_made_for_us_alone(tmp_path: Path) -> None:
    published = publisher(f"ipc://{tmp_path}/run/a.sock")
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    published.stop()
    assert list((tmp_path / "run").iterdir()) == [], "socket and lock are removed"


def test_a_directory_that_others_may_write_to_is_refused(directory: Path) -> None:
    directory.chmod(0o770)
    for use in (publisher, connectable):
        with pytest.raises(EndpointError, match=r"others may write to it \(mode 0770\)"):
            use(f"ipc://{directory}/a.sock")


def test_a_directory_that_is_a_link_is_refused(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(directory)
    for use in (publisher, connectable):
        with pytest.raises(EndpointError, match="it is a link"):
            use(f"ipc://{tmp_path}/link/a.sock")


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EndpointError, match="cannot be created: File exists"):
        publisher(f"ipc://{tmp_path}/file/a.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(directory: Path) -> None:
    os.chown(directory, 4711, -1)
    with pytest.raises(EndpointError, match="it belongs to uid 4711, we are 0"):
        publisher(f"ipc://{directory}/a.sock")


def test_an_endpoint_of_this_process_is_taken(directory: Path) -> None:
    first = publisher(f"ipc://{directory}/a.sock")
    with pytest.raises(EndpointError, match="another process publishes there; stop it or use"):
        publisher(f"ipc://{directory}/a.sock")
    first.stop()
    publisher(f"ipc://{directory}/a.sock").stop()


def test_an_endpoint_of_a_live_process_is_taken_and_of_a_dead_one_replaced(directory: Path) -> None:
    endpoint = f"ipc://{directory}/a.sock"
    code = (
        "import sys; from kvscope_events.bus import EventBus\n"
        "from kvscope_events.wire.publisher import WirePublisher\n"
        f"p = WirePublisher(EventBus(), {endpoint!r}); p.start()\n"
        "print('bound', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "bound\n"
        with pytest.raises(EndpointError, match="another process publishes there"):
            publisher(endpoint)
        other.kill()
        other.wait()
    assert (directory / "a.sock").is_socket(), "a killed process leaves its socket"
    publisher(endpoint).stop()


def test_the_socket_of_another_program_is_left_alone(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(directory / "a.sock"))
        theirs.listen()
        with pytest.raises(EndpointError, match="another process publishes there"):
            publisher(f"ipc://{directory}/a.sock")
    assert (directory / "a.sock").is_socket()


def test_a_file_that_is_not_a_socket_is_left_alone(directory: Path) -> None:
    (directory / "a.sock").write_text("a letter")
    with pytest.raises(EndpointError, match="it exists and is not a socket"):
        publisher(f"ipc://{directory}/a.sock")
    assert (directory / "a.sock").read_text() == "a letter"


def test_a_tcp_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        port = theirs.getsockname()[1]
        with pytest.raises(EndpointError, match="another process listens there"):
            publisher(f"tcp://127.0.0.1:{port}")


def test_an_address_of_no_interface_cannot_be_bound() -> None:
    with pytest.raises(EndpointError, match="cannot be bound"):
        WirePublisher(EventBus(), "tcp://203.0.113.7:0", allow_remote=True)


def test_nobody_is_read_at_port_0() -> None:
    with pytest.raises(EndpointError, match="port 0 cannot be reached"):
        connectable("tcp://127.0.0.1:0")
