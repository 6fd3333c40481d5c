"""Memory of a sidecar through a day's load: `python -m benchmarks.sidecar_day [--hours 24]`.

A scheduler and pool of ours serve conversations, 3,600 requests an hour, as fast as they can, in a
process of their own: a day of one a second in some minutes. After each hour the sidecar has folded
everything, and its page is read. Prints one JSON line.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.engine_stream import Recording
from benchmarks.report import environment
from benchmarks.sidecar_idle import memory_bytes, page, watching
from kvscope_events.events import RequestFinished
from kvscope_events.wire.publisher import WirePublisher
from tests.support.pages import sample
from tests.support.waiting import wait_for

REQUESTS = 3600
NUM_BLOCKS, RUNNING = 10_000, 32


def publish(folder: str) -> None:
    """The other process: an hour of requests for each line of its input."""
    recording = Recording(NUM_BLOCKS, RUNNING)
    publisher = WirePublisher(recording.bus, f"ipc://{folder}/0.sock")
    publisher.start()
    recording.step()
    print("ready", flush=True)
    for _ in sys.stdin:
        finished = 0
        while finished < REQUESTS:
            for batch in recording.step():
                finished += sum(isinstance(event, RequestFinished) for event in batch.events)
        print("done", flush=True)
    publisher.stop()


@contextmanager
def publishing() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The folder of its socket, and the process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.sidecar_day", "--publish", folder]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            try:
                _answer(other, "ready")
                yield folder, other
            finally:
                other.kill()


def _answer(other: "subprocess.Popen[str]", wanted: str) -> None:
    assert other.stdout is not None
    assert other.stdout.readline() == f"{wanted}\n"


def day(hours: int) -> dict[str, object]:
    resident: list[float] = []
    with publishing() as (folder, other), watching(folder, 1) as (process, url):
        pid, text = process.popen.pid, ""

        def has_all() -> bool:
            nonlocal text
            text = page(url, 0)
            ended = sample(text, "kvscope_requests_finished_total", reason="length") or 0
            return ended >= REQUESTS * (len(resident) + 1)

        for _ in range(hours):
            assert other.stdin is not None
            print(file=other.stdin, flush=True)
            _answer(other, "done")
            wait_for(has_all, "the hour is folded", 300)
            resident.append(memory_bytes(pid, "Rss") / 2**20)
            print(f"hour {len(resident)}: {resident[-1]:.0f} MiB resident", flush=True)
        return {
            "requests": REQUESTS * hours,
            "steps": sample(text, "kvscope_events_total", type="StepCompleted"),
            "evicted_blocks": sample(text, "kvscope_kv_block_evictions_total", cause="capacity"),
            "batches_lost": sample(text, "kvscope_event_batches_dropped_total"),
            "imbalance": sample(text, "kvscope_kv_ledger_imbalance_blocks"),
            "resident_mib": [round(each) for each in resident],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--publish")
    arguments = parser.parse_args()
    if arguments.publish:
        publish(arguments.publish)
        return
    print(json.dumps({"benchmark": "sidecar_day", **day(arguments.hours), **environment()}))


if __name__ == "__main__":
    main()
