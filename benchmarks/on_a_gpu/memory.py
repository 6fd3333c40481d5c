"""The ledger of the card through an engine's life: start, load, a neighbour, out of memory."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.on_a_gpu.report import Figure
from benchmarks.on_a_gpu.step import random_model
from engine.model.demo import demo_tokenizer

COMPONENT = "kvscope_gpu_memory_component_bytes"
TOTAL = "kvscope_gpu_memory_total_bytes"
TARGET_SHARE = 0.01
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
    shares = {path.stem: _unattributed(path) for path in sorted(pages.iterdir())}
    for stage, share in shares.items():
        print(f"unattributed, {stage}: {share:.4%}")
    found = [
        Figure("ledger of the demo model in process: as by its check", checked, "", 0),
        Figure("8B out of memory beside a neighbour, and back: as by its check", crowded, "", 0),
        Figure(
            f"largest unattributed share of the card in {len(shares)} stages",
            *(max(shares.values()), "", TARGET_SHARE),
        ),
    ]
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
    """Blocks that `kvscope plan` expects on this card, as `kvscope serve` is started."""
    command = [
        *(sys.executable, "-m", "kvscope", "plan", str(checkpoint)),
        *("--gpu", torch.cuda.get_device_name(), "--json"),
    ]
    planned = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    pool: int = planned["budget"]["chunked"]["kv_pool"]
    return pool // int(planned["bytes"]["per_block"])


def _unattributed(page: Path) -> float:
    """Its share of the card; the components add up, or this raises AssertionError."""
    components = {labels["component"]: size for labels, size in _samples(page, COMPONENT)}
    ((_, total),) = _samples(page, TOTAL)
    assert sum(components.values()) == total, f"{page}: the components do not add up"
    return abs(components.get("unattributed", 0.0)) / total


def _samples(page: Path, name: str) -> Iterator[tuple[dict[str, str], float]]:
    for family in text_string_to_metric_families(page.read_text()):
        for sample in family.samples:
            if sample.name == name:
                yield sample.labels, sample.value


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
