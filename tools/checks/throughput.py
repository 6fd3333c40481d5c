"""Output throughput of a server with a means of observation, over the same one without it.

    python -m tools.checks.throughput vllm|sglang [--python PYTHON] [--starts 5] [--pairs 24]
        [--model FOLDER --engine-options JSON]

PYTHON is an interpreter with that server. Means: the observer, with its sidecar beside (`kvscope
run`); in a vLLM also `--kv-cache-metrics` unsampled, and the KV event publisher without a reader;
and nothing at all, which shows what the comparison itself scatters.

Both sides of a pair are one process (`tests/*/offline.py`), since two processes of one program
differ by more than what is measured for as long as they live. It is without its HTTP server: on a
CPU vLLM's runs two processes that wait by spinning, and on few cores it decides by chance which of
them is held up. The sidecar is stopped while the observer is away. The order alternates from pair
to pair, and each process is restarted `--starts` times. With `--engine-options`, vLLM is on a GPU.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import Peer
from benchmarks.report import report
from tests.sglang import offline as sglang
from tests.sglang.server import ON_A_CPU
from tests.support.process import ROOT, SOURCES
from tests.vllm import offline as vllm
from tests.vllm.model import tiny_model
from tests.vllm.server import card_environment, free_port, kvscope_command, server_environment

MEANS = {"vllm": vllm.MEANS, "sglang": sglang.MEANS}
"""By server."""
SEQUENCES = (1, 8, 32, 64)
KINDS = ("elapsed", "cpu")
Pair = dict[bool, dict[str, float]]
"""Output tokens a second with the means (True) and without it, of elapsed and of CPU time."""


class Observed(Peer):
    """A server whose means of observation is switched from batch to batch."""

    is_watched = False
    """Whether the process is `kvscope run`, whose sidecar is beside the server."""
    page = ""
    """URL of the sidecar's."""

    @property
    def gaps(self) -> list[float]:
        """Seconds between the decode steps of the last batch, from a vLLM."""
        found: list[float] = self.said.get("gaps", [])
        return found

    def rates(self, on: bool, sequences: int, seed: int, **tokens: int) -> dict[str, float]:
        """Output tokens a second of one batch, of elapsed and of CPU time.

        tokens: of `prompt` and `output`, of a vLLM.
        """
        self.signal(signal.SIGCONT if on else signal.SIGSTOP)
        rates: dict[str, float] = self.ask(
            {"on": on, "sequences": sequences, "seed": seed, **tokens}
        )
        return rates

    def memory(self) -> dict[str, float]:
        """Bytes in its torch's allocator."""
        held: dict[str, float] = self.ask({"memory": True})
        return held

    def signal(self, number: int) -> None:
        """To the sidecar, if there is one."""
        if self.is_watched:
            os.kill(self.process.pid, number)


@contextmanager
def running(
    server: str,
    means: str,
    python: Path,
    model: Path,
    folder: Path,
    *,
    engine: dict[str, Any] | None = None,
    log: Path | None = None,
) -> Iterator[Observed]:
    """A peer with this means; its files go to `folder`, and its output to the log.

    engine: options of a vLLM on a GPU; None: on a CPU.
    """
    command = [str(python), "-m", f"tests.{server}.offline", means, str(model), str(folder)]
    page_port = free_port()
    if engine is not None:
        command.append(json.dumps(engine))
    if means == "observer":
        options = ("--port", str(page_port), *(("--no-gpu",) if engine is None else ()), "--")
        command = [*kvscope_command("run", *options), *command]
    if engine is None:
        variables = server_environment(PYTHONPATH=SOURCES)
    else:
        variables = card_environment()
        paths = filter(None, (SOURCES, variables.get("PYTHONPATH")))
        variables["PYTHONPATH"] = os.pathsep.join(paths)
    variables["KVSCOPE_RUN_DIR"] = str(folder / "run")
    if server == "sglang":
        variables |= ON_A_CPU
    with (log or folder / "log").open("wb") as errors:
        peer = Observed(command, errors=errors, cwd=ROOT, variables=variables)
        peer.is_watched, peer.page = means == "observer", f"http://127.0.0.1:{page_port}/metrics"
        try:
            yield peer
        except BaseException:
            peer.process.terminate()  # or it would first end its start, or its batch
            raise
        finally:
            peer.signal(signal.SIGCONT)
            peer.close()


def compare(peer: Observed, sequences: int, pairs: int) -> list[Pair]:
    """Pairs of batches, after one of warm-up."""
    found = []
    for number in range(pairs + 1):
        order = (True, False) if number % 2 else (False, True)
        found.append({on: peer.rates(on, sequences, 1000 * sequences + number) for on in order})
    return found[1:]


def summary(pairs: list[Pair], kind: str) -> dict[str, float]:
    """The ratio of the rates with the means and without it."""
    ratios = sorted(pair[True][kind] / pair[False][kind] for pair in pairs)
    return {
        "tokens_per_second": median(pair[True][kind] for pair in pairs),
        "ratio": median(ratios),
        "lower_quartile": ratios[len(ratios) // 4],
        "upper_quartile": ratios[-1 - len(ratios) // 4],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("server", choices=MEANS)
    parser.add_argument("--python", type=Path, help="by default .venv/SERVER/bin/python")
    parser.add_argument("--starts", type=int, default=5, help="times that each process starts")
    parser.add_argument("--pairs", type=int, default=24, help="pairs a start")
    parser.add_argument("--means", nargs="+", choices=vllm.MEANS, help="by default all it has")
    parser.add_argument("--sequences", nargs="+", type=int, default=SEQUENCES)
    parser.add_argument("--model", type=Path, help="checkpoint; by default a tiny one")
    parser.add_argument(
        "--engine-options", type=json.loads, help="JSON: a vLLM on a GPU, with these of its LLM's"
    )
    arguments = parser.parse_args()
    server = arguments.server
    python = arguments.python or ROOT / ".venv" / server / "bin" / "python"
    tried = arguments.means or MEANS[server]
    pairs: dict[tuple[str, int], list[Pair]] = {}
    with tempfile.TemporaryDirectory() as name:
        model = arguments.model or tiny_model(Path(name) / "model", "llama")
        for start in range(arguments.starts):
            for means in tried:
                folder = Path(name) / f"{means}-{start}".replace(" ", "-")
                folder.mkdir(mode=0o700)
                engine = arguments.engine_options
                with running(server, means, python, model, folder, engine=engine) as peer:
                    for count in arguments.sequences:
                        found = compare(peer, count, arguments.pairs)
                        pairs.setdefault((means, count), []).extend(found)
                        both = [f"{kind} {summary(found, kind)['ratio']:.3f}" for kind in KINDS]
                        row = f"start {start}, {means}, {count} sequences"
                        print(f"{row}: {', '.join(both)}", file=sys.stderr, flush=True)
    rows: dict[str, object] = {
        f"{means}, {kind} time, {count} sequences": summary(each, kind)
        for (means, count), each in pairs.items()
        for kind in KINDS
    }
    report("throughput", rows, pairs=str(arguments.starts * arguments.pairs))


if __name__ == "__main__":
    main()
