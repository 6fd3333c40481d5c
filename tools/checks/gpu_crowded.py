"""A real card on its way out of memory: a neighbour crowds it, long prompts come, it goes again.

    python -m tools.checks.gpu_crowded [--model MODEL] [--rest MIB]

`kvscope engine serve` with its defaults, a neighbour that takes what is free but a last rest,
`kvscope load` with long prompts; then the neighbour ends. Prints what each metric said each time,
as oom.md does of a simulated card. Exit code 0 if the engine ran out of memory and afterwards
answers as before; 1 if not; 2 where there is no CUDA device.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import torch
from prometheus_client.parser import text_string_to_metric_families

from tests.gpu.story import QUESTIONS, Said, table
from tests.support.process import ROOT, kvscope

MIB, GIB = 2**20, 2**30
LEFT = (8 * GIB, 2 * GIB, GIB // 2)
"""Bytes that the neighbour leaves free, stage after stage, before the last rest."""
SETTLE_SECONDS = 6.0
"""Longer than the slowest source takes for a sample: processes, every five seconds."""
LOAD_SECONDS = 40

_NEIGHBOUR = """
import sys, torch
held = []
print("ready", torch.zeros(1, device="cuda").item(), flush=True)
for line in sys.stdin:
    size = torch.cuda.mem_get_info()[0] - int(line)
    if size > 0:
        held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    print("free", torch.cuda.mem_get_info()[0], flush=True)
"""


class Neighbour:
    """Another process on the same card."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _NEIGHBOUR],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def leave_free(self, size: int) -> None:
        """Take all but `size` bytes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{size}\n")
        self._process.stdin.flush()
        self._answer()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit("gpu_crowded: the neighbour ended: see its error above")


def page_of(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=10).text


def answers(page: str) -> Said:
    """All questions of the story, to a page; 0 for what has not happened yet."""
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    return {
        short: next(
            (s.value for s in samples if s.name == name and labels.items() <= s.labels.items()), 0.0
        )
        for short, (name, labels) in QUESTIONS.items()
    }


@contextmanager
def load(
    url: str, report: Path, seconds: int = LOAD_SECONDS
) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "kvscope", "load", "rag", url]
    command += ["--concurrency", "32", "--duration", str(seconds)]
    command += ["-o", "json"]
    with report.open("w") as out, subprocess.Popen(command, cwd=ROOT, stdout=out) as process:
        yield process


def tell(url: str, rest: int, report: Path) -> Iterator[tuple[str, str]]:
    """Play the stages; yields a title and the page, one after the other."""
    time.sleep(SETTLE_SECONDS)
    yield "started, idle", page_of(url)
    neighbour = Neighbour()
    try:
        for left in (*LEFT, rest):
            neighbour.leave_free(left)
            time.sleep(SETTLE_SECONDS)
            yield f"neighbour leaves {left / GIB:.3g} GiB", page_of(url)
        with load(url, report) as process:
            for seconds in (8, 16):
                time.sleep(8)
                yield f"long prompts for {seconds} s", page_of(url)
            neighbour.end()
            time.sleep(SETTLE_SECONDS)
            yield "neighbour gone", page_of(url)
            process.wait(120)
    finally:
        neighbour.end()
    with load(url, report.with_name("afterwards.json"), seconds=10) as process:
        process.wait(60)
    yield "load again, 10 s", page_of(url)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="demo", help="a checkpoint, or the demo model")
    parser.add_argument("--rest", type=int, default=256, help="MiB left when the prompts come")
    parser.add_argument("--pages", type=Path, help="folder for the page of each stage")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_crowded: torch sees no CUDA device: nothing to check here", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_properties(0).name}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        with kvscope("engine", "serve", "--model", arguments.model, "--port", "0") as server:
            url = server.find(r"serving \S+ at (\S+)/v1")
            titles, pages = zip(*tell(url, arguments.rest * MIB, report), strict=True)
            said = [answers(page) for page in pages]
            print(table(titles, said))
            print(server.text)
        if arguments.pages is not None:
            for number, page in enumerate(pages, 1):
                (arguments.pages / f"stage-{number}.prom").write_text(page)
        crowded, afterwards = (
            json.loads(report.with_name(name).read_text())
            for name in (report.name, "afterwards.json")
        )
    for title, outcome in (("crowded", crowded), ("afterwards", afterwards)):
        print(f"{title}: {outcome['ok']} requests ok, failed: {outcome['failed'] or 'none'}")
    recovered = afterwards["ok"] and not afterwards["failed"]
    return 0 if said[-1]["engine ooms"] and recovered else 1


if __name__ == "__main__":
    sys.exit(main())
