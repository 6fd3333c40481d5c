"""All that a GPU has to show, in one command: figures, targets, yes or no.

    python -m benchmarks.on_a_gpu --out DIR [--only SECTION ...]
        [--vllm-python PYTHON --vllm-model MODEL]

Needs a CUDA device that nothing else uses, with 60 GiB, some 20 GiB of disk, and no network; takes
about seven minutes, and as long again with a vLLM; `python -m benchmarks.on_a_gpu.rehearsal` tries
that part without a card. Each section is a process of its own, so that one that fails or hangs
leaves the others: its output is DIR/SECTION.log. Writes DIR/report.md and DIR/report.json. Ends
with code 2 without a device, 1 where a target is missed or a section fails.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.on_a_gpu.report import Figure, table, write
from benchmarks.report import environment

SECONDS = {
    "card": 60,
    "tokens": 200,
    "attention": 150,
    "prefill": 90,
    "step": 200,
    "swap": 60,
    "memory": 300,
    "vllm-pairs": 400,
    "vllm-served": 400,
}
"""Limit of each section, in the order they run."""
END_SECONDS = 60.0
"""For what a section has started to end, after its limit."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the report and logs")
    parser.add_argument("--only", nargs="+", choices=SECONDS, metavar="SECTION")
    parser.add_argument("--vllm-python", help="interpreter of an environment with a vLLM for CUDA")
    parser.add_argument(
        "--vllm-model",
        type=Path,
        help="folder of an 8B Llama, of which configuration and tokenizer are enough",
    )
    parser.add_argument("--section", choices=SECONDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    of_vllm = bool(arguments.vllm_python and arguments.vllm_model)
    chosen = arguments.only or [n for n in SECONDS if of_vllm or not n.startswith("vllm-")]
    if not of_vllm and any(name.startswith("vllm-") for name in chosen):
        parser.error("sections of a vLLM need --vllm-python and --vllm-model")
    if not torch.cuda.is_available():
        print("benchmarks.on_a_gpu: no CUDA device here: nothing measured", file=sys.stderr)
        return 2
    arguments.out = arguments.out.absolute()  # a server runs elsewhere
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.section:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what it has started
        return _measure(arguments.section, arguments)
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    for name in chosen:
        began = time.monotonic()
        known = arguments.out / f"{name}.json"
        known.unlink(missing_ok=True)
        reason = _run(name, arguments)
        if reason:
            failed[name] = reason
        if known.exists():  # of a failed section, what it had found before
            figures += _read(known)
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


def _run(name: str, arguments: argparse.Namespace) -> str | None:
    """The reason, if it failed."""
    command = [sys.executable, "-m", "benchmarks.on_a_gpu"]
    command += ["--out", str(arguments.out), "--section", name]
    if arguments.vllm_python and arguments.vllm_model:
        command += ["--vllm-python", arguments.vllm_python]
        command += ["--vllm-model", str(arguments.vllm_model)]
    limit = SECONDS[name]
    with (arguments.out / f"{name}.log").open("w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            child.terminate()
            try:
                child.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            return f"not done after {limit} s"
        except BaseException:  # Ctrl-C, which a session of its own does not get
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return f"exit code {code}" if code else None


def _read(path: Path) -> list[Figure]:
    fields = json.loads(path.read_text())
    return [Figure(**figure) for figure in fields]


def _measure(name: str, arguments: argparse.Namespace) -> int:
    """One section, in this process."""
    out = arguments.out
    if name.startswith("vllm-"):
        return _measure_vllm(name, arguments)
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
    }
    figures = sections[name]()
    print(table(figures))
    write(out / f"{name}.json", figures)
    return 0


def _measure_vllm(name: str, arguments: argparse.Namespace) -> int:
    """It writes what it has found by itself, part by part."""
    from benchmarks.on_a_gpu import vllm_pairs, vllm_served
    from benchmarks.on_a_gpu.vllm import on_a_card

    python = Path(shutil.which(arguments.vllm_python) or arguments.vllm_python).absolute()
    setting = on_a_card(python, arguments.vllm_model)
    measure = {"vllm-pairs": vllm_pairs.measure, "vllm-served": vllm_served.measure}[name]
    measure(setting, arguments.out)
    print(table(_read(arguments.out / f"{name}.json")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
