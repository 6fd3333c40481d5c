"""`python -m tools.pictures.hybrid_pictures`: our boards over a vLLM with several kinds of layers.

A model laid out like gemma-3, two sliding windows to one layer of full attention, under chats that
its pool cannot keep. All boards go to build/screenshots as hybrid-*.png, what refuses hits to
docs/images. Needs `make vllm`, tools/render built, and Chromium.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.support.hybrid_checkpoints import make_hybrid
from tools.pictures.observed_vllm import stage
from tools.pictures.screenshots import BOARDS, EVERYTHING, IMAGES, Measured, Picture, draw, shrink
from tools.pictures.situations import ROOT, SETTLE_SECONDS, Window

MODEL = "gemma-3-4b"
LOAD = (
    *("chat", "--concurrency", "6", "--sessions", "24", "--max-tokens", "96", "--model", MODEL),
)
POOL = ("--num-gpu-blocks-override", "420", "--dtype", "bfloat16")
"""Enough for those who ask at once, and not for what they all have said."""
IMAGE = Picture(dashboard="prefix-cache", situation="hybrid", panels=(801, 802))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="of the load")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/vllm/bin/python")
    arguments = parser.parse_args()
    EVERYTHING.mkdir(parents=True, exist_ok=True)
    make = partial(make_hybrid, architecture="gemma3")
    with (
        tempfile.TemporaryDirectory() as folder,
        stage(Path(folder), arguments.python, *POOL, make=make, name=MODEL) as on,
    ):
        began = time.time()
        with on.load(*LOAD):
            time.sleep(arguments.seconds)
            window = Window(name="hybrid", began=began + SETTLE_SECONDS, ended=time.time())
        measured = Measured(url=on.prometheus.url, url_of_many="", instance="", windows=[window])
        image = IMAGES / "vllm-groups.png"
        good = [draw(measured, window, IMAGE, image)]
        for board in BOARDS:
            picture = Picture(dashboard=board, situation="hybrid")
            good.append(draw(measured, window, picture, EVERYTHING / f"hybrid-{board}.png"))
    shrink(image)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
