"""A real vLLM on the same shape, in a process and an environment of its own."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.on_a_gpu.report import Figure
from benchmarks.on_a_gpu.step import CONFIG, CONTEXT, MAX_MODEL_LEN, SEQUENCES, STEPS

PEER = Path(__file__).with_name("vllm_peer.py")


def figures(python: str | None) -> list[Figure]:
    """Milliseconds of a step; nothing where there is no vLLM.

    python: its interpreter. Its weights are dummies of the same shape.
    """
    if python is None:
        print("no vLLM beside: --vllm-python was not given", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        config = CONFIG.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
        (Path(folder) / "config.json").write_text(json.dumps(config, default=str))
        numbers = [str(number) for number in (CONTEXT, STEPS, MAX_MODEL_LEN, *SEQUENCES)]
        ended = subprocess.run(
            [python, str(PEER), folder, *numbers], stdout=subprocess.PIPE, text=True, check=False
        )
    lines = [line for line in ended.stdout.splitlines() if line.startswith('{"peer"')]
    if ended.returncode or not lines:
        raise SystemExit(f"the vLLM process ended with code {ended.returncode}")
    peer = json.loads(lines[-1])["peer"]
    return [
        Figure(f"8B decode step of {count}, vLLM {peer['version']}", milliseconds, "ms")
        for count, milliseconds in peer["milliseconds"].items()
    ]
