"""All that a GPU has to show, in one command: figures, targets, yes or no.

    python -m benchmarks.on_a_gpu --out DIR [--only SECTION ...] [--vllm-python PYTHON]

Needs a CUDA device that nothing else uses, with 60 GiB, some 20 GiB of disk, and no network; takes
about ten minutes, and as long again with a vLLM. Each section is a process of its own, so that one
that fails or hangs leaves the others: its output is DIR/SECTION.log. Writes DIR/report.md and
DIR/report.json. Ends with code 2 without a device, 1 where a target is missed or a section fails.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.on_a_gpu.report import Figure, table
from benchmarks.report import environment

SECONDS = {
    "card": 60,
    "tokens": 200,
    "attention": 150,
    "prefill": 90,
    "step": 200,
    "swap": 60,
    "memory": 300,
    "vllm": 900,
}
"""Limit of each section, in the order they run."""
SWEEPS = {"sweep": 240}
"""Sections that run only by name."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the report and logs")
    named = [*SECONDS, *SWEEPS]
    parser.add_argument("--only", nargs="+", choices=named, metavar="SECTION", help=f"{named}")
    parser.add_argument("--vllm-python", help="interpreter of an environment with a vLLM for CUDA")
    parser.add_argument("--section", choices=named, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks.on_a_gpu: no CUDA device here: nothing measured", file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.section:
        return _measure(arguments.section, arguments.out, arguments.vllm_python)
    chosen = arguments.only or [n for n in SECONDS if n != "vllm" or arguments.vllm_python]
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    for name in chosen:
        began = time.monotonic()
        reason = _run(name, arguments.out, arguments.vllm_python)
        if reason:
            failed[name] = reason
        else:
            figures += _read(arguments.out / f"{name}.json")
        took = time.monotonic() - began
        print(f"{name}: {reason or 'done'}, {took:.0f} s", file=sys.stderr, flush=True)
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}", "", table(figures)]
    lines += [f"**{name} failed**: {reason}; see {name}.log" for name, reason in failed.items()]
    (arguments.out / "report.md").write_text("\n".join(lines) + "\n")
    document = {
        "environment": environment() | {"gpu": torch.cuda.get_device_name()},
        "figures": [{**figure._asdict(), "met": figure.met} for figure in figures],
        "failed": failed,
    }
    (arguments.out / "report.json").write_text(json.dumps(document, indent=1))
    print("\n".join(lines))
    return 1 if failed or any(figure.met is False for figure in figures) else 0


def _run(name: str, out: Path, vllm_python: str | None) -> str | None:
    """Why it failed."""
    command = [sys.executable, "-m", "benchmarks.on_a_gpu", "--out", str(out), "--section", name]
    if vllm_python:
        command += ["--vllm-python", vllm_python]
    limit = (SECONDS | SWEEPS)[name]
    with (out / f"{name}.log").open("w") as log:
        try:
            ended = subprocess.run(command, stdout=log, stderr=log, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return f"not done after {limit} s"
    return f"exit code {ended.returncode}" if ended.returncode else None


def _read(path: Path) -> list[Figure]:
    fields = json.loads(path.read_text())
    return [Figure(**figure) for figure in fields]


def _measure(name: str, out: Path, vllm_python: str | None) -> int:
    """One section, in this process."""
    # Not before: this imports the kernels, which want to know what they run on.
    from benchmarks.on_a_gpu import (
        attention,
        card,
        ceilings,
        memory,
        prefill,
        step,
        swap,
        tokens,
        vllm,
    )

    def held(measure: Callable[[ceilings.Ceilings], list[Figure]]) -> list[Figure]:
        """With the ceilings measured just before, in the same process."""
        return measure(ceilings.measure())

    sections: dict[str, Callable[[], list[Figure]]] = {
        "card": lambda: [*held(ceilings.figures), *card.figures(out)],
        "tokens": lambda: tokens.figures(out),
        "attention": lambda: held(attention.figures),
        "prefill": lambda: held(prefill.figures),
        "step": lambda: held(lambda measured: step.figures(measured, out)),
        "swap": swap.figures,
        "memory": lambda: memory.figures(out),
        "vllm": lambda: vllm.figures(vllm_python),
        "sweep": lambda: held(
            lambda measured: [*attention.sweep(measured), *prefill.sweep(measured)]
        ),
    }
    figures = sections[name]()
    print(table(figures))
    (out / f"{name}.json").write_text(json.dumps([figure._asdict() for figure in figures]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
