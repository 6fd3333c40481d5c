"""The ledger of the card through an engine's life: start, load, a neighbour, out of memory."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.on_a_gpu.nvml import COMPONENT, TARGET, samples, total
from benchmarks.on_a_gpu.report import Figure
from benchmarks.on_a_gpu.step import random_model
from kvscope_engine.model.demo import demo_tokenizer

REST_MIB = 64
"""Less than a step of the largest size takes."""


def figures(out: Path) -> list[Figure]:
    """out: the folder for the pages of each stage and the programs' output."""
    pages = out / "pages"
    pages.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own, or this one would be a neighbour on the card.
        subprocess.run([sys.executable, "-m", __name__, folder], check=True)
        checkpoint = Path(folder)
        checked = _program(out / "gpu_check.txt", "tools.checks.gpu_check")
        crowded = _program(
            out / "gpu_crowded.txt",
            *("tools.checks.gpu_crowded", "--model", str(checkpoint), "--pages", str(pages)),
            *("--rest", str(REST_MIB)),
        )
        planned = _plan(checkpoint)
    said = (out / "gpu_crowded.txt").read_text()
    print(said)
    shares = {path.stem: _unattributed(path.read_text()) for path in sorted(pages.iterdir())}
    for stage, share in shares.items():
        print(f"unattributed, {stage}: {share:.4%}")
    found = [
        Figure("ledger of the demo model in process: as by its check", checked, "", 0),
        Figure("8B out of memory beside a neighbour, and back: as by its check", crowded, "", 0),
    ]
    if shares:
        named = f"largest unattributed share of the card in {len(shares)} stages"
        found.append(Figure(named, max(shares.values()), "", TARGET))
    started = re.search(r"([\d,]+) blocks", said)
    if started is not None:
        blocks = int(started[1].replace(",", ""))
        found.append(Figure("blocks of the 8B's pool, planned over measured", planned / blocks, ""))
    return found


def write_checkpoint(folder: Path) -> None:
    """The 8B model of random weights, with the demo model's tokenizer."""
    random_model().save_pretrained(folder, max_shard_size="5GB")
    demo_tokenizer().save_pretrained(folder)


def _program(log: Path, module: str, *arguments: str) -> float:
    """Its exit code."""
    with log.open("w") as written:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, stdout=written, stderr=written, check=False).returncode


def _plan(checkpoint: Path) -> int:
    """Blocks that `kvscope plan` expects on this card, as `kvscope engine serve` is started."""
    command = [
        *(sys.executable, "-m", "kvscope", "plan", str(checkpoint)),
        *("--gpu", torch.cuda.get_device_name(), "-o", "json"),
    ]
    planned = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    pool: int = planned["budget"]["chunked"]["kv_pool"]
    return pool // int(planned["bytes"]["per_block"])


def _unattributed(page: str) -> float:
    """Its share of the card; the components add up, or this raises AssertionError."""
    parts = {labels["component"]: size for name, labels, size in samples(page) if name == COMPONENT}
    card = total(page, "kvscope_gpu_memory_total_bytes")
    assert sum(parts.values()) == card, "the components do not add up"
    return abs(parts.get("unattributed", 0.0)) / card


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
