"""An observed vLLM with all that a test compares: its witness, the replayed stream, the page."""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from kvscope.doctor.switching import switch
from tests.support.operated import START_SECONDS
from tests.support.pages import sample
from tests.support.process import ROOT
from tests.support.waiting import wait_for
from tests.vllm.live_replay import Replay, differences, steps_of
from tests.vllm.server import (
    API_SERVER,
    VllmServer,
    free_port,
    kvscope_command,
    plugin_folder,
    server_command,
    server_environment,
    started,
    witness_lines,
)

WITNESS = Path(__file__).with_name("witness.py")
SMALL = ("--max-model-len", "1024", "--num-gpu-blocks-override", "120", "--max-num-seqs", "16")
"""A pool that a few requests fill, so that running ones are preempted and contents evicted."""

PROMPTS = tuple(
    f"{'a shared beginning ' * 8}{number % 3}{' and an end of its own' * (number % 4)}"
    for number in range(8)
)
"""Some begin alike, some are the same; asked one by one, so that nothing depends on time."""


@dataclass
class Observed:
    """A running vLLM, its observer's reports, and the truth."""

    server: VllmServer
    folder: Path
    url: str
    """Base URL of the sidecar."""
    replays: dict[int, Replay] = field(default_factory=dict)
    """By data-parallel rank."""

    @property
    def replay(self) -> Replay:
        return self.replays[0]

    def page(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def value(self, name: str, **labels: str) -> float | None:
        return sample(self.page(), name, **labels)

    def witnessed(self) -> dict[int, list[dict[str, Any]]]:
        return witness_lines(self.folder / "witness")

    def settle(self) -> None:
        """Until vLLM is idle and every step of it has been replayed and folded."""
        self.server.wait_idle()
        for rank, lines in self.witnessed().items():
            self.replays[rank].wait_for_steps(steps_of(lines))
        wait_for(self.folded, "the sidecar has folded all that was replayed")

    def assert_equal(self) -> int:
        """At every step so far the replayed pool was vLLM's own; returns the number of steps."""
        self.settle()
        steps = 0
        for rank, lines in self.witnessed().items():
            replay = self.replays[rank]
            found = differences(replay, lines)
            assert not found, f"{len(found)} of {len(lines)} differ: {found[:5]}"
            assert not replay.contradictions, replay.contradictions[:5]
            assert (replay.lost, replay.stopped) == (0, None)
            steps += replay.steps
        return steps

    def folded(self) -> bool:
        """Whether the page has every step that was replayed."""
        page = self.page()
        return all(
            sample(page, "kvscope_events_total", engine=str(rank), type="StepCompleted")
            == replay.kinds["StepCompleted"]
            for rank, replay in self.replays.items()
        )


@contextmanager
def observed(
    python: Path,
    model: Path,
    folder: Path,
    *options: str,
    ranks: int = 1,
    modules: Iterable[Path] = (),
    program: Sequence[str] = API_SERVER,
    start_seconds: float = START_SECONDS,
    **environment: str,
) -> Iterator[Observed]:
    """`kvscope run -- vLLM`, its stream replayed from the first batch on.

    modules: files that vLLM can import.
    """
    witness = folder / "witness"
    witness.mkdir()
    plugin = plugin_folder(folder / "plugin", "kvscope_witness", WITNESS)
    for module in modules:
        (plugin / module.name).symlink_to(module)
    port, page_port = free_port(), free_port()
    command = [
        *kvscope_command("run", "--port", str(page_port), "--no-gpu", "--compat", "vllm", "--"),
        *server_command(python, model, port, *options, program=program),
    ]
    with ExitStack() as stack:
        # Not below `folder`, whose path may be too long for sockets.
        run = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvscope-"))
        variables = server_environment(
            PYTHONPATH=str(plugin), KVSCOPE_RUN_DIR=run, KVSCOPE_WITNESS=str(witness), **environment
        )
        server = stack.enter_context(
            started(command, variables, port, folder, "vllm", start_seconds)
        )
        # Late, and still from the first batch on: the publisher has all of them yet.
        sockets = re.search(r"; events: (\S+)/\*", server.log)
        assert sockets is not None, server.tail()
        replays = {rank: Replay(f"{sockets[1]}/engine-{rank}.sock") for rank in range(ranks)}
        for replay in replays.values():
            stack.callback(replay.close)
        yield Observed(server, folder, f"http://127.0.0.1:{page_port}", replays)


def load(server: VllmServer, *, requests: int = 50, seed: int = 0) -> None:
    """Chats of `kvscope load`, more than a pool of `SMALL` keeps, then requests that outgrow it."""
    done = subprocess.run(
        kvscope_command(
            *("load", "chat", server.url, "--num-requests", str(requests)),
            *("--concurrency", "20", "--max-tokens", "120", "--ignore-eos", "--seed", str(seed)),
            *("-o", "json"),
        ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    # A connection that was idle for long may be closed just as it is used again.
    assert report["ok"] >= requests - 2, report
    assert set(report["failed"]) <= {"disconnected"}, report
    outgrow(server, seed)


def outgrow(server: VllmServer, seed: int = 0, *, sequences: int = 10) -> None:
    """Sequences that all fit while they are short, and do not any more when they are long."""
    prompts = [f"{seed} {number} {'more and more ' * 8}" for number in range(sequences)]
    assert [len(tokens) for tokens in server.complete(prompts, 500)] == [500] * len(prompts)


def reset_while_it_runs(vllm: Observed) -> None:
    """Have it preempt what runs, to forget all that it holds; what ran is served all the same."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(vllm.server.complete, list(PROMPTS[:4]), 700)
        wait_for(lambda: vllm.replay.ledger.num_active > 8, "they run")
        vllm.server.reset(running=True)
        assert [len(tokens) for tokens in answer.result()] == [700] * 4


def ended(server: VllmServer, end: Callable[[], None]) -> int:
    """The exit status of `kvscope run` after this, with nothing of vLLM left behind."""
    below = server.descendants()
    assert len(below) > 2
    end()
    status = server.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "all ended")
    return status


def switch_off_and_on(vllm: Observed) -> None:
    """Its observer goes and comes back, and the page says so."""
    place = vllm.replay.endpoint
    assert switch(place, on=False, seconds=60).state == "off"
    # The answer to an order has a connection of its own, and may be there before the event.
    wait_for(lambda: vllm.value("kvscope_observer_stopped", endpoint=place) == 1, "it is off")
    assert vllm.value("kvscope_kv_ledger_imbalance_blocks") is None
    assert switch(place, on=True, seconds=60).state == "on"
    wait_for(lambda: vllm.value("kvscope_observer_stopped", endpoint=place) == 0, "it is on again")
    assert vllm.value("kvscope_kv_ledger_imbalance_blocks") == 0


def leave_early(vllm: Observed, number: int) -> None:
    """Ask for more than it will wait for: some leave while they wait, some when served."""
    body = {"model": "tiny", "prompt": f"{number} {PROMPTS[number % 8] * 2}", "max_tokens": 400}
    with (
        httpx.Client(timeout=60) as client,
        client.stream(
            "POST",
            f"{vllm.server.url}/v1/completions",
            json=body | {"stream": True, "ignore_eos": True, "temperature": 0},
        ) as answer,
    ):
        for seen, _ in enumerate(answer.iter_lines()):
            if seen >= number * 3:
                return
