"""Our boards over a vLLM that ran elsewhere, drawn from the pages that were kept of it.

    python -m tools.pictures.saved_pages DIR [--to FOLDER]

DIR is what `python -m benchmarks.on_a_gpu --only vllm-served --out DIR` wrote. The pages become
blocks of a Prometheus, with the moments at which they were read, so that ages are those of then.
Rules are not evaluated: panels of alerts are empty. Needs promtool, tools/render built, and
Chromium.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.on_a_gpu.pages import EVERY_SECONDS, read, with_moments
from benchmarks.on_a_gpu.vllm_served import PAGES, WINDOW
from tests.support.prometheus import prometheus_with
from tools.pictures.screenshots import EVERYTHING
from tools.pictures.situations import SETTLE_SECONDS, Window
from tools.pictures.vllm_pictures import draw_all

NOTHING = "scrape_configs: []\n"
RETENTION = "--storage.tsdb.retention.time=100y"
"""Or what is older than two weeks would be deleted at the start."""


def backfill(pages: Path, folder: Path) -> None:
    """Make blocks of the pages in folder/data."""
    text = folder / "pages.txt"
    with text.open("w") as file:
        file.writelines(f"{line}\n" for line in with_moments(read(pages)))
    data = folder / "data"
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, metavar="DIR")
    parser.add_argument("--to", type=Path, default=EVERYTHING, help="folder in the checkout")
    arguments = parser.parse_args()
    to = arguments.to.absolute()
    to.mkdir(parents=True, exist_ok=True)
    window = json.loads((arguments.run / WINDOW).read_text())
    began = window["began"] + SETTLE_SECONDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        backfill(arguments.run / PAGES, folder)
        with prometheus_with(NOTHING, folder, RETENTION) as running:
            shown = Window(name="vllm", began=began, ended=window["ended"] - EVERY_SECONDS)
            good = draw_all(running.url, shown, to)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
