"""The ledger of a real engine run on a real GPU: torch's figures against NVML's.

    python -m tools.checks.gpu_check [--model MODEL] [--blocks N]

Runs the engine on CUDA under load, reads its own exposition page twice (under load, and idle after
it) and prints every component, their sum against the total, and the share that is unaccounted for.
Exit code 0 if that is under 1 % of the total, 1 if not, 2 where there is no CUDA device or NVML.
"""

import argparse
import os
import sys
import time
from importlib.metadata import version
from random import Random

import torch
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from benchmarks.offline import OfflineEngine
from kvscope_exporter.machine.gpu import Cadence, GpuPoller
from kvscope_exporter.machine.machine import Machine

TARGET_SHARE = 0.01
COMPONENT = "kvscope_gpu_memory_component_bytes"
TOTAL = "kvscope_gpu_memory_total_bytes"
PATIENCE_SECONDS = 30.0
SEQUENCES = 16


def device_uuid() -> str:
    """As NVML spells it."""
    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


def ledger(engine: OfflineEngine, uuid: str) -> tuple[dict[str, int], int] | None:
    """(bytes by component, total bytes) of the device; None: not all is known yet."""
    components: dict[str, int] = {}
    total = None
    for family in text_string_to_metric_families(engine.render().decode()):
        for sample in family.samples:
            if sample.labels.get("uuid") != uuid:
                continue
            if sample.name == COMPONENT:
                components[sample.labels["component"]] = int(sample.value)
            elif sample.name == TOTAL:
                total = int(sample.value)
    if total is None or "weights" not in components:
        return None
    return components, total


def wait_for_ledger(engine: OfflineEngine, uuid: str) -> tuple[dict[str, int], int]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = ledger(engine, uuid)
        if found is not None:
            return found
        time.sleep(0.2)
    raise SystemExit(
        f"gpu_check: no ledger for {uuid} within {PATIENCE_SECONDS:.0f} s: is NVML usable here? "
        "`kvscope doctor` says what can be read"
    )


def show(console: Console, title: str, components: dict[str, int], total: int) -> float:
    """Print one ledger; returns the unattributed share of the total."""
    table = Table(title=title)
    for heading in ("component", "bytes", "share"):
        table.add_column(heading, justify="left" if heading == "component" else "right")
    for name, size in components.items():
        table.add_row(name, f"{size:,}", f"{size / total:.3%}")
    table.add_section()
    table.add_row("sum", f"{sum(components.values()):,}", "")
    table.add_row("total (NVML)", f"{total:,}", "")
    console.print(table)
    assert sum(components.values()) == total, "the components do not add up to the total"
    return abs(components.get("unattributed", 0)) / total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="demo", help="a checkpoint, or the demo model")
    parser.add_argument("--blocks", type=int, default=4096, help="blocks in the KV pool")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_check: torch sees no CUDA device: nothing to check here", file=sys.stderr)
        return 2
    console = Console(width=int(os.environ.get("COLUMNS", "100")))
    properties = torch.cuda.get_device_properties(0)
    console.print(
        f"{properties.name}, torch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"nvidia-ml-py {version('nvidia-ml-py')}"
    )
    poller = GpuPoller(Cadence(processes=1.0))
    poller.start()
    engine = OfflineEngine(
        arguments.model, arguments.blocks, SEQUENCES, observed=True, machine=Machine(gpu=poller)
    )
    random = Random(0)
    prompts = [[random.randrange(256) for _ in range(512)] for _ in range(SEQUENCES)]
    shares = []
    for title in ("after the first load", "after the second load"):
        engine.run(prompts, output_tokens=256)
        time.sleep(2.0)  # one sample of each of the three sources, taken since
        shares.append(show(console, title, *wait_for_ledger(engine, device_uuid())))
    engine.close()
    poller.stop()
    console.print(f"unattributed: {max(shares):.3%} of the total, target under {TARGET_SHARE:.0%}")
    return 0 if max(shares) < TARGET_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
