"""`kvscope run` with real processes: signals, exit codes, the environment of the command."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.process import ROOT, Process, completed, forked_kvscope
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.waits, pytest.mark.timeout(120)]

SAYS_WHAT_IT_GETS = """
import signal, sys, time
got = []
def note(number, frame):
    got.append(number)
    print("got", signal.Signals(number).name, len(got), flush=True)
    if number == signal.SIGTERM:
        time.sleep(0.3)  # a second one would come meanwhile
        sys.exit(3)
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"):
    signal.signal(getattr(signal, name), note)
print("it is", "ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """The parent of the runs' folders; none may be left."""
    folder = Path(f"/tmp/kvscope-test-{os.getpid()}")
    yield folder
    assert list(folder.glob("run-*")) == []
    if folder.exists():
        folder.rmdir()


def run(runs: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"KVSCOPE_RUN_DIR": str(runs), **environment}
    return completed("run", "--port", "0", "--no-gpu", "--", *command, **environment)


def running(runs: Path, *command: str, options: tuple[str, ...] = ()) -> "Iterator[Process]":
    return forked_kvscope(  # type: ignore[return-value]
        "run", "--port", "0", "--no-gpu", *options, "--", *command, KVSCOPE_RUN_DIR=str(runs)
    )


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (("sh", "-c", "exit 0"), 0, "exit code 0"),
        (("sh", "-c", "exit 7"), 7, "exit code 7"),
        (("sh", "-c", "kill -KILL $$"), 137, "exit code 137"),
        (("no-such-command",), 127, "kvscope: no-such-command: command not found"),
        (("/",), 126, "kvscope: /: cannot be executed: Permission denied"),
    ],
    ids=["well", "fails at once", "is killed", "is not there", "is a folder"],
)
def test_the_exit_code_is_the_commands(
    runs: Path, command: tuple[str, ...], code: int, says: str
) -> None:
    done = run(runs, *command)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr


def test_a_command_that_fails_at_once_is_not_waited_for(runs: Path) -> None:
    assert run(runs, "false").returncode == 1, "`run` gives up after a minute"


def test_a_parent_that_ignores_its_children_does_not_make_us_wait_for_ever(runs: Path) -> None:
    command = 'trap "" CHLD; exec "$0" -m kvscope run --port 0 --no-gpu -- sh -c "exit 4"'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=ROOT,
        env=os.environ | {"KVSCOPE_RUN_DIR": str(runs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4, done.stderr


def test_the_command_gets_the_plugin_beside_what_it_had(runs: Path) -> None:
    code = (
        "import os; print([os.environ.get(n) for n in "
        "('PYTHONPATH', 'VLLM_PLUGINS', 'KVSCOPE_OBSERVER_DIR')])\n"
        "from importlib.metadata import entry_points\n"
        "print([e.value for e in entry_points(group='vllm.general_plugins')])\n"
        "import kvscope_events; print(kvscope_events.__file__)"
    )
    for allowed, expected in (("lora", "'lora,kvscope'"), ("", "'kvscope'")):
        done = run(
            runs, sys.executable, "-P", "-c", code, PYTHONPATH="/elsewhere", VLLM_PLUGINS=allowed
        )
        assert f":/elsewhere', {expected}, '{runs}/run-" in done.stdout, done.stdout + done.stderr
        assert "kvscope_events.observers.vllm:register" in done.stdout
        assert re.search(rf"{runs}/run-[\w-]+/plugin/kvscope_events/__init__.py", done.stdout)
    assert "VLLM_PLUGINS" not in os.environ
    assert ", None, " in run(runs, sys.executable, "-P", "-c", code).stdout, (
        "not an empty allowlist"
    )


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_is_passed_on_once(runs: Path, name: str) -> None:
    with running(runs, sys.executable, "-c", SAYS_WHAT_IT_GETS) as process:  # type: ignore[attr-defined]
        process.find("(it is ready)")
        process.send(getattr(signal, name))
        process.find(f"(got {name})")
        process.send(signal.SIGTERM)
        assert process.wait() == 3
        assert process.text.count("got SIG") == 2, process.text
        assert "exit code 3" in process.text


def test_being_stopped_for_longer_than_a_tick_is_no_signal(runs: Path) -> None:
    with running(runs, sys.executable, "-c", SAYS_WHAT_IT_GETS) as process:  # type: ignore[attr-defined]
        process.find("(it is ready)")
        process.send(signal.SIGUSR1)
        process.find("(got SIGUSR1)")
        for _ in range(5):
            process.send(signal.SIGSTOP)
            time.sleep(1.2)
            process.send(signal.SIGCONT)
            time.sleep(0.2)
        process.send(signal.SIGTERM)
        assert process.wait() == 3, process.text
        assert process.text.count("got SIG") == 2, process.text


def test_ctrl_c_reaches_the_command_exactly_once(runs: Path) -> None:
    leader, terminal = pty.openpty()
    with subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "kvscope", "run", "--port", "0", "--no-gpu", "--"),
            *(sys.executable, "-c", SAYS_WHAT_IT_GETS),
        ],
        cwd=ROOT,
        env=os.environ | {"KVSCOPE_RUN_DIR": str(runs)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    ) as popen:
        os.close(terminal)
        seen = ""
        deadline = time.monotonic() + 60

        def read_until(text: str) -> str:
            nonlocal seen
            while text not in seen:
                assert time.monotonic() < deadline, seen
                seen += os.read(leader, 4096).decode()
            return seen

        read_until("it is ready")
        os.write(leader, b"\x03")
        read_until("got SIGINT")
        time.sleep(1.0)  # a second one would have been passed on by now
        popen.send_signal(signal.SIGTERM)
        read_until("exit code 3")
        assert popen.wait(20) == 3
        assert seen.count("got SIGINT") == 1
    os.close(leader)


def test_a_port_in_use_is_an_error_before_the_command_starts(runs: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = completed(
            *("run", "--no-gpu", "--port", str(port), "--", "touch", str(tmp_path / "started")),
            KVSCOPE_RUN_DIR=str(runs),
        )
    assert done.returncode == 2
    assert f"kvscope: cannot listen on 127.0.0.1:{port}" in done.stderr
    assert not (tmp_path / "started").exists()


def test_options_after_the_command_are_its_own(runs: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "kvscope", "run", "--port", "0", "--no-gpu"),
            *("echo", "serve", "--port", "8000", "--help"),
        ],
        cwd=ROOT,
        env=os.environ | {"KVSCOPE_RUN_DIR": str(runs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "serve --port 8000 --help\n"


def test_a_command_that_forks_ends_when_it_ends(runs: Path) -> None:
    """Its children are its own; a daemon that it leaves behind is not ours."""
    code = (
        "import os, sys, time\n"
        "children = [os.fork() for _ in range(3)]\n"
        "if 0 in children: time.sleep(0.2); os._exit(0)\n"
        "print([os.waitpid(child, 0)[1] for child in children], flush=True)\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); os.close(1); os.close(2); time.sleep(90); os._exit(0)\n"
        "sys.exit(4)"
    )
    done = run(runs, sys.executable, "-c", code)  # gives up after a minute, before the daemon ends
    assert (done.returncode, done.stdout) == (4, "[0, 0, 0]\n"), done.stderr


def test_the_page_is_there_and_says_what_to_check_without_an_observer(runs: Path) -> None:
    with running(runs, "sleep", "60", options=("--hint-after", "0.1")) as process:  # type: ignore[attr-defined]
        url = process.find(r"metrics: (http://\S+/metrics)")
        assert "kvscope_build_info" in httpx.get(url).text
        assert httpx.get(url.replace("/metrics", "/health")).json() == {"status": "ok"}
        process.find("(no observer has reported)")
        time.sleep(1.5)
        process.send(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
        assert process.text.count("no observer has reported") == 1


STANDS_IN = """
import os, time
from kvscope_events.bus import EventBus
from kvscope_events.events import CONTRACT_VERSION, Hello, ObserverStopped
from kvscope_events.wire.publisher import WirePublisher
bus = EventBus()
publisher = WirePublisher(bus, f"ipc://{os.environ['KVSCOPE_OBSERVER_DIR']}/engine-0.sock")
publisher.start()
bus.emit(Hello(CONTRACT_VERSION, publisher.session.hex(), "vllm", "0.32.0", "tiny", "0",
               os.getpid(), True, ["Hello"]))
bus.flush()
time.sleep(3)
bus.emit(ObserverStopped("tried out"))
bus.flush()
time.sleep(60)
"""


def test_observers_are_named_when_they_come_and_when_they_stop(runs: Path) -> None:
    with running(runs, sys.executable, "-c", STANDS_IN) as process:  # type: ignore[attr-defined]
        url = process.find(r"metrics: (http://\S+/metrics)")
        process.find(r"(observed: vllm 0\.32\.0, model tiny, engine 0)")
        wait_for(lambda: 'model_name="tiny"' in httpx.get(url).text)
        process.find("(no longer observed: .*: tried out)")
        process.send(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_orphans_are_reaped_where_we_are_their_parent(runs: Path) -> None:
    """As the first process of a container; here by asking the kernel to be made their parent."""
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(36, 1); "  # PR_SET_CHILD_SUBREAPER
        "sys.argv = ['kvscope', 'run', '--port', '0', '--no-gpu', '--', 'sh', '-c', "
        "'(sleep 0.2 & echo orphan $!) ; sleep 1; cat /proc/$PPID/task/*/children; exit 5']; "
        "from kvscope.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"KVSCOPE_RUN_DIR": str(runs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    orphan, children = done.stdout.splitlines()
    assert orphan.split()[1] not in children.split(), "a zombie"
    assert done.returncode == 5


def test_the_folder_of_the_observer_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "kvscope", "observer", "install", str(folder)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    script = f'{done.stdout}\necho "$PYTHONPATH|$VLLM_PLUGINS"'
    for given, expected in (({}, ""), ({"VLLM_PLUGINS": "a"}, "a,kvscope")):
        shown = subprocess.run(
            ["sh", "-c", script], env=given, capture_output=True, text=True, check=True
        )
        assert shown.stdout.strip("\n").split("|") == [str(folder), expected]
    assert sorted(p.name.split("-")[0] for p in folder.iterdir()) == ["kvscope_events"] * 2
    assert not list(folder.rglob("__pycache__"))
