"""Everything about decoding on a GPU, in one command: figures, targets, yes or no.

    python -m benchmarks.gpu_decode [--vllm-python PYTHON] [--sweep]

Needs a CUDA device that nothing else uses, and 40 GiB of it. Ends with code 2 without one, 1 where
a target is missed. The last line of the output is JSON.
"""

import argparse
import json
import sys

import torch

from benchmarks.gpu_decode.report import Figure, table
from benchmarks.report import environment


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm-python", help="interpreter of an environment with a vLLM for CUDA")
    parser.add_argument("--sweep", action="store_true", help="try the kernel's other shapes too")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks.gpu_decode: no CUDA device here: nothing measured", file=sys.stderr)
        return 2
    # Not before: this imports the kernels, which want to know what they run on.
    from benchmarks.gpu_decode import attention, step, tokens, vllm

    figures: list[Figure] = []
    copy_bandwidth = attention.copy_bandwidth()
    for measure in (
        tokens.figures,
        lambda: attention.figures(copy_bandwidth),
        lambda: attention.sweep(copy_bandwidth) if arguments.sweep else [],
        lambda: step.figures(copy_bandwidth),
        lambda: vllm.figures(arguments.vllm_python),
    ):
        figures += measure()
        print(table(figures), file=sys.stderr)
    print(table(figures))
    facts = environment() | {
        "gpu": torch.cuda.get_device_name(),
        "copy_bytes_per_second": f"{copy_bandwidth:.4g}",
    }
    document = {
        "environment": facts,
        "figures": [{**figure._asdict(), "met": figure.met} for figure in figures],
    }
    print(json.dumps(document))
    return 1 if any(figure.met is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
