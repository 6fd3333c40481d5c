"""Endpoints and run directories: what is refused, in one line that says what to do."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kvscope_events.bus import EventBus
from kvscope_events.wire import run_directory as module
from kvscope_events.wire.endpoint import EndpointError, parse_endpoint
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.run_directory import (
    connectable,
    run_directory,
    run_endpoint,
    settle_run_directory,
)


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


def test_the_run_directory_is_configured_or_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_RUN_DIR", "/one")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run_directory() == "/one"
    monkeypatch.delenv("KVSCOPE_RUN_DIR")
    assert run_endpoint("engine-0") == f"ipc://{tmp_path}/kvscope/engine-0.sock"
    taken_by("open to all", tmp_path / "kvscope")
    assert run_directory() == f"/tmp/kvscope-{os.getuid()}"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert run_directory() == f"/tmp/kvscope-{os.getuid()}"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Places for the run directory, without one that is configured."""
    found = [tmp_path / name for name in ("tmp", "var", "shm")]
    for place in found:
        place.mkdir()
        place.chmod(0o1777)
    monkeypatch.setattr(module, "_PLACES", tuple(map(str, found)))
    for variable in ("KVSCOPE_RUN_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(variable, "")
    return [place / f"kvscope-{os.getuid()}" for place in found]


def taken_by(kind: str, place: Path) -> None:
    """Another user has made it, in one way or another."""
    if kind == "a link":
        place.symlink_to("/etc")
    elif kind == "a file":
        place.touch()
    else:
        place.mkdir(mode=0o700)
        if kind == "of another":
            os.chown(place, 4711, -1)
        else:
            place.chmod(0o777)


@pytest.mark.parametrize("kind", ["a link", "a file", "open to all", "of another"])
def test_a_run_directory_that_somebody_else_made_first_leads_to_another(
    kind: str, places: list[Path]
) -> None:
    if kind == "of another" and os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    taken_by(kind, places[0])
    remark = settle_run_directory()
    assert str(places[0]) in remark
    assert str(places[1]) in remark
    assert "\n" not in remark
    assert os.environ["KVSCOPE_RUN_DIR"] == str(places[1]), "for what this process starts"
    assert settle_run_directory() == "", "once"
    publisher(run_endpoint("engine-0")).stop()
    os.environ["KVSCOPE_RUN_DIR"] = ""
    places[0].rmdir() if places[0].is_dir() and kind != "a link" else places[0].unlink()
    assert run_directory() == str(places[1]), "where the server is, also for later commands"
    assert connectable(run_endpoint("engine-0")).path is not None


def test_whatever_is_taken_a_place_is_left_or_said_to_be_missing(places: list[Path]) -> None:
    assert run_directory() == str(places[0])
    for number, place in enumerate(places):
        assert run_directory() == str(place), number
        taken_by("a link", place)
    assert run_directory() == f"{places[0]}-1"
    for number in range(1, 9):
        taken_by("a link", Path(f"{places[0]}-{number}"))
    with pytest.raises(EndpointError, match="it is a link"):
        publisher(run_endpoint("engine-0"))


def test_a_directory_below_one_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    below = tmp_path / "open" / "ours"
    below.mkdir(parents=True, mode=0o700)
    below.parent.chmod(0o777)
    for use in (publisher, connectable):
        with pytest.raises(EndpointError, match=r"others may write to \S+/open above it"):
            use(f"ipc://{below}/a.sock")
    below.parent.chmod(0o1777)
    publisher(f"ipc://{below}/a.sock").stop()
    connectable(f"ipc://{below}/a.sock")
    (tmp_path / "link").symlink_to("open/ours")
    below.parent.chmod(0o777)
    with pytest.raises(EndpointError, match=r"open above it"):
        publisher(f"ipc://{tmp_path}/link/sub/a.sock")  # a link of ours leads there
    assert not (below / "sub").exists(), "nothing was made"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    os.lchown(tmp_path / "link", 4711, -1)
    with pytest.raises(EndpointError, match=r"link above it belongs to uid 4711"):
        publisher(f"ipc://{tmp_path}/link/sub/a.sock")
    assert not list((tmp_path / "target").iterdir())


def test_what_is_made_on_the_way_is_ours_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        publisher(f"ipc://{tmp_path}/a/b/c/a.sock").stop()
    finally:
        os.umask(before)
    for made in ("a", "a/b", "a/b/c"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o700, made


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


def test_a_program_that_accepts_nobody_holds_no_start(directory: Path) -> None:
    """As a server that is stopped, whose lock was swept away: its backlog is full."""
    with ExitStack() as stack:
        theirs = stack.enter_context(socket.socket(socket.AF_UNIX))
        theirs.bind(str(directory / "a.sock"))
        theirs.listen(0)
        with suppress(BlockingIOError):
            while True:
                peer = stack.enter_context(socket.socket(socket.AF_UNIX))
                peer.setblocking(False)
                peer.connect(str(directory / "a.sock"))
        problems: list[EndpointError] = []

        def start() -> None:
            try:
                publisher(f"ipc://{directory}/a.sock")
            except EndpointError as error:
                problems.append(error)

        starting = threading.Thread(target=start, daemon=True)
        starting.start()
        starting.join(10)
        assert [each.problem for each in problems] == ["another process publishes there"]


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
