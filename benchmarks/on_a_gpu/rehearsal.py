"""The sections with a real vLLM on a CPU, with a tiny model: whether they run, not how fast.

    python -m benchmarks.on_a_gpu.rehearsal --out DIR [--python PYTHON] [--only PART ...]

Writes to DIR what they write on a card, so that boards can be drawn from it.
"""

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.on_a_gpu import vllm_pairs, vllm_served
from benchmarks.on_a_gpu.report import Figure, table
from benchmarks.on_a_gpu.vllm import on_a_cpu
from tests.support.process import ROOT
from tests.vllm.model import tiny_model

PARTS = {"vllm-pairs": vllm_pairs.measure, "vllm-served": vllm_served.measure}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/vllm/bin/python")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        setting = on_a_cpu(arguments.python, tiny_model(Path(folder), "llama"))
        for name in arguments.only:
            PARTS[name](setting, out)
            fields = json.loads((out / f"{name}.json").read_text())
            print(table([Figure(**figure) for figure in fields]))


if __name__ == "__main__":
    main()
