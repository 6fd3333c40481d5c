"""`python -m tools.pictures.vllm_pictures`: our boards over a real observed vLLM under load.

The pictures go to docs/images as vllm-*.png. Needs `make vllm`, tools/render built, and Chromium.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from dashboards.generate import as_json
from tools.pictures import comparison
from tools.pictures.observed_vllm import stage
from tools.pictures.screenshots import EVERYTHING, IMAGES, Measured, Picture, draw, shrink
from tools.pictures.situations import ROOT, SETTLE_SECONDS, Window

LOAD = (
    *("mix", "--concurrency", "24", "--sessions", "40", "--max-tokens", "192"),
    *("--model", "llama-8b"),
)
PICTURES = {
    "vllm-overview": Picture(dashboard="overview", situation="vllm", until=400),
    "vllm-kv-pool": Picture(dashboard="kv-pool", situation="vllm", panels=(201, 302, 305)),
    "vllm-prefix-cache": Picture(dashboard="prefix-cache", situation="vllm", until=400),
    "vllm-clients": Picture(dashboard="service-levels", situation="vllm", panels=(401, 402, 403)),
    "vllm-memory": Picture(dashboard="memory", situation="vllm", until=300),
}


def draw_all(prometheus: str, window: Window, folder: Path) -> bool:
    """Draw all of them into the folder; whether all could be drawn. prometheus: its URL."""
    EVERYTHING.mkdir(parents=True, exist_ok=True)
    board = EVERYTHING / "comparison.json"
    board.write_text(as_json(comparison.build))
    measured = Measured(url=prometheus, url_of_many="", instance="", windows=[window])
    good = [
        draw(measured, window, picture, folder / f"{name}.png")
        for name, picture in PICTURES.items()
    ]
    side_by_side = Picture(dashboard="comparison", situation="vllm")
    out = folder / "vllm-side-by-side.png"
    good.append(draw(measured, window, side_by_side, out, board=board))
    for name in (*PICTURES, "vllm-side-by-side"):
        shrink(folder / f"{name}.png")
    return all(good)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="of the load")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/vllm/bin/python")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        stage(Path(folder), arguments.python) as on,
    ):
        began = time.time()
        with on.load(*LOAD, "--period", f"{arguments.seconds / 2.5:.0f}"):
            time.sleep(arguments.seconds)
            window = Window(name="vllm", began=began + SETTLE_SECONDS, ended=time.time())
        good = draw_all(on.prometheus.url, window, IMAGES)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
