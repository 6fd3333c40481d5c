"""The process that publishes serves on, whatever it runs out of, and whatever connects."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kvscope_events.stacks import Stacks
from kvscope_events.wire import publisher as publishing
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import WireSubscriber
from tests.events.peers import connection, is_sent_away, published
from tests.events.producers import Producer, collect
from tests.support.waiting import wait_for

HOST = """
import os, resource, signal, sys, time
from kvscope_events.wire.publisher import WirePublisher
from tests.events.producers import Producer
producer = Producer()
publisher = WirePublisher(producer.bus, sys.argv[1])
publisher.start()
producer.begin()
def say(word):
    print(word, flush=True)
    assert sys.stdin.readline()
{work}
print("ended", flush=True)
"""
NO_FILES = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    say("exhausted")
for file in held:
    os.close(file)
for _ in range(200):
    producer.step()
    time.sleep(0.01)
say("serves")
publisher.stop()
"""
NO_MEMORY = """
import threading
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
held = []
for size in (1 << 20, 1 << 16, 1 << 12, 1 << 9):
    try:
        while True:
            held.append(bytes(size))
    except MemoryError:
        pass
os.write(1, b"exhausted\\n")
os.read(0, 1)
held.clear()
producer.step()
say("serves")
"""
NO_POLL = """
say("ready")
for _ in range(60):
    producer.step(padding=100_000)
    time.sleep(0.01)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
time.sleep(0.5)
{meanwhile}
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
producer.step()
say("serves")
"""
FORKED = """
child = os.fork()
if not child:
    signal.pause()
producer.step()
print(child, flush=True)
say("forked")
"""


class Host:
    """A process that publishes and says where it is."""

    def __init__(self, endpoint: str, work: str, **options: object) -> None:
        command = [sys.executable, "-c", HOST.format(work=work), endpoint]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.popen: subprocess.Popen[str] = subprocess.Popen(command, **pipes, **options)  # type: ignore[call-overload]

    def says(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def goes_on(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def ends(self) -> int:
        return self.popen.wait(30)


@contextmanager
def host(endpoint: str, work: str) -> Iterator[Host]:
    made = Host(endpoint, work)
    try:
        yield made
    finally:
        made.popen.kill()
        made.popen.communicate()


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine.sock"


def test_a_process_without_files_left_lives_and_serves_those_who_came_meanwhile(
    endpoint: str,
) -> None:
    with host(endpoint, NO_FILES) as one, ExitStack() as stack:
        assert one.says() == "exhausted"
        watch = WireSubscriber(endpoint)
        stack.callback(watch.close)
        for _ in range(20):
            stack.enter_context(connection(endpoint)).close()
        time.sleep(1)
        assert one.popen.poll() is None
        assert not watch.up
        one.goes_on()
        wait_for(lambda: watch.take() is not None)
        assert one.says() == "serves"
        one.goes_on()
        assert one.says() == "ended"
        assert one.ends() == 0


def test_a_reader_that_was_stopped_and_goes_on_harms_no_process_without_files(
    endpoint: str,
) -> None:
    """As `kvscope sidecar` does to an engine that was silent: it probes, and connects again."""
    with host(endpoint, NO_FILES) as one:
        assert one.says() == "exhausted"
        one.popen.send_signal(signal.SIGSTOP)
        with contextlib.suppress(BlockingIOError), ExitStack() as stack:
            while True:  # more than its backlog takes
                peer = stack.enter_context(socket.socket(socket.AF_UNIX))
                peer.setblocking(False)
                peer.connect(endpoint.removeprefix("ipc://"))
        one.popen.send_signal(signal.SIGCONT)
        one.goes_on()
        assert one.says() == "serves"


@pytest.mark.parametrize("meanwhile", ["", "publisher.stop()"], ids=["serves", "stops"])
def test_a_limit_at_which_nothing_can_be_waited_for_ends_no_publisher(
    endpoint: str, meanwhile: str
) -> None:
    """Also while a reader has not taken all: that is waited for elsewhere."""
    with host(endpoint, NO_POLL.replace("{meanwhile}", meanwhile)) as one, ExitStack() as stack:
        assert one.says() == "ready"
        stack.enter_context(connection(endpoint))
        one.goes_on()
        assert one.says() == "serves"
        if not meanwhile:
            watch = WireSubscriber(endpoint)
            stack.callback(watch.close)
            collect(watch, lambda taken: taken[-1:] != [] and taken[-1].batch.seq == 61)
        one.goes_on()
        assert one.says() == "ended"
        assert one.ends() == 0


def test_a_process_at_its_limit_of_memory_lives_and_serves_when_it_has_some_again(
    endpoint: str,
) -> None:
    with host(endpoint, NO_MEMORY) as one, ExitStack() as stack:
        watch = WireSubscriber(endpoint)
        stack.callback(watch.close)
        collect(watch, lambda taken: len(taken) == 1)
        assert one.says() == "exhausted"
        late = WireSubscriber(endpoint)
        stack.callback(late.close)
        time.sleep(1)
        assert one.popen.poll() is None
        one.goes_on()
        collect(late, lambda taken: len(taken) == 2)
        assert one.says() == "serves"


def test_the_last_files_are_left_to_the_process(endpoint: str) -> None:
    work = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(64 - 8 - len(os.listdir("/proc/self/fd")))]
say("few are left")
print(64 - len(os.listdir("/proc/self/fd")), flush=True)
"""
    with host(endpoint, work) as one, ExitStack() as stack:
        assert one.says() == "few are left"
        peers = [stack.enter_context(connection(endpoint)) for _ in range(4)]
        assert is_sent_away(peers[-1])
        one.goes_on()
        assert int(one.says()) >= 64 // 8 - 1, "one is what lists them"


def test_a_socket_that_was_swept_away_with_its_folder_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "LOOK_NS", 100_000_000)
    folder = tmp_path / "run" / "kvscope"
    endpoint = f"ipc://{folder}/engine.sock"
    with published(endpoint) as (made, _), ExitStack() as stack:
        before = WireSubscriber(endpoint)
        stack.callback(before.close)
        collect(before, lambda taken: len(taken) == 1)
        shutil.rmtree(folder.parent)
        wait_for((folder / "engine.sock").is_socket)
        late = WireSubscriber(endpoint)
        stack.callback(late.close)
        made.step()
        assert len(collect(late, lambda taken: len(taken) == 2)) == 2
        assert len(collect(before, lambda taken: len(taken) == 1)) == 1, "and nobody was cut off"


def test_a_folder_that_cannot_be_made_again_is_named_and_readers_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publishing, "LOOK_NS", 100_000_000)
    folder = tmp_path / "kvscope"
    with published(f"ipc://{folder}/engine.sock") as (made, _), ExitStack() as stack:
        watch = WireSubscriber(f"ipc://{folder}/engine.sock")
        stack.callback(watch.close)
        collect(watch, lambda taken: len(taken) == 1)
        shutil.rmtree(folder)
        folder.write_text("in the way")
        wait_for(lambda: "new readers cannot connect" in caplog.text)
        made.step()
        assert len(collect(watch, lambda taken: len(taken) == 1)) == 1
        folder.unlink()
        wait_for((folder / "engine.sock").is_socket)
    assert caplog.text.count("new readers cannot connect") == 1


def make_foreign_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))


@pytest.mark.alone
@pytest.mark.parametrize("suffix", ["", ".lock"])
@pytest.mark.parametrize(
    "make",
    [Path.mkdir, Path.touch, os.mkfifo, lambda path: path.symlink_to("x"), make_foreign_socket],
    ids=["folder", "file", "pipe", "link", "socket"],
)
def test_what_is_put_in_place_of_a_socket_stays_and_costs_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], suffix: str
) -> None:
    monkeypatch.setattr(publishing, "LOOK_NS", 20_000_000)
    path = tmp_path / "engine.sock"
    theirs = tmp_path / f"engine.sock{suffix}"
    with published(f"ipc://{path}") as (made, publisher), ExitStack() as stack:
        watch = WireSubscriber(f"ipc://{path}")
        stack.callback(watch.close)
        collect(watch, lambda taken: len(taken) == 1)
        files = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(publishing, "LOOK_NS", 10**12)
        time.sleep(0.1)
        path.unlink()
        (tmp_path / "engine.sock.lock").unlink()
        make(theirs)
        found = theirs.lstat()
        monkeypatch.setattr(publishing, "LOOK_NS", 20_000_000)
        time.sleep(1)
        assert len(os.listdir("/proc/self/fd")) <= files
        publisher.stop()
        # An unbound socket and an unheld lock are what a dead publisher leaves behind.
        if (suffix, make) not in (("", make_foreign_socket), (".lock", Path.touch)):
            assert os.path.samestat(theirs.lstat(), found)
        made.step()


def test_a_fork_that_outlives_its_parent_holds_no_reader(endpoint: str) -> None:
    with host(endpoint, FORKED) as parent:
        child = int(parent.says())
        try:
            assert parent.says() == "forked"
            with connection(endpoint) as peer:
                parent.popen.kill()
                parent.popen.wait()
                peer.settimeout(10)
                assert is_sent_away(peer), "the child has closed what it inherited"
            with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
                late.connect(endpoint.removeprefix("ipc://"))
        finally:
            os.kill(child, signal.SIGKILL)


def test_stacks_are_told_whatever_a_thread_is_called() -> None:
    ended = threading.Event()
    odd = threading.Thread(target=ended.wait, name="half a character: \udc80")
    odd.start()
    told = Stacks.decoded(Stacks.now().encoded())
    ended.set()
    odd.join()
    assert "(half a character: ?)" in told.text


def test_a_process_that_may_have_no_more_threads_is_told_so(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    publisher = WirePublisher(Producer().bus, endpoint)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            publisher.start()
    publisher.stop()
    assert not os.path.exists(endpoint.removeprefix("ipc://"))
    with published(endpoint):
        pass


def test_a_server_that_ends_on_broken_pipes_is_not_ended_by_a_reader_that_left(
    endpoint: str,
) -> None:
    work = """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
say("ready")
for _ in range(100):
    producer.step(padding=10_000)
    time.sleep(0.01)
"""
    with host(endpoint, work) as one:
        assert one.says() == "ready"
        peer = connection(endpoint)
        one.goes_on()
        select.select([peer], [], [], 10)
        peer.close()
        assert one.says() == "ended"
        assert one.ends() == 0
