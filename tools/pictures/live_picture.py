"""`python -m tools.pictures.live_picture`: the live page over a real vLLM under load, as it moves.

Writes docs/images/live.gif, under 2 MB. Needs `make vllm` and Chromium.
"""

import argparse
import io
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from PIL import Image

from tests.support.chromium import Page, browsing
from tools.pictures.situations import MODEL, real
from tools.pictures.stage import ROOT

TARGET = ROOT / "docs" / "images" / "live.gif"
MAX_BYTES = 2_000_000
WIDTH, HEIGHT = 1280, 900
SHOWN_WIDTH = 960
COLOURS = 255
LOAD = ("mix", "--concurrency", "24", "--sessions", "40", "--max-tokens", "192", "--model", MODEL)


def film(page: Page, pictures: int, pause: float) -> list[Image.Image]:
    """Pictures of the upper part of the page."""
    made = []
    for number in range(pictures):
        if number == pictures // 2:
            page.value("kvscopeLive.map.colour('owner')")
        began = time.monotonic()
        with Image.open(io.BytesIO(page.picture())) as picture:
            size = (SHOWN_WIDTH, round(SHOWN_WIDTH * picture.height / picture.width))
            made.append(picture.convert("RGB").resize(size, Image.Resampling.LANCZOS))
        time.sleep(max(0.0, began + pause - time.monotonic()))
    return made


def write(pictures: list[Image.Image], pause: float) -> int:
    """One palette for all, without dithering, so that what stands still costs nothing."""
    some = pictures[:: len(pictures) // 6]
    sheet = Image.new("RGB", (pictures[0].width, len(some) * pictures[0].height))
    for row, picture in enumerate(some):
        sheet.paste(picture, (0, row * picture.height))
    palette = sheet.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    frames = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
    frames[0].save(
        TARGET,
        save_all=True,
        append_images=frames[1:],
        duration=round(1000 * pause),
        loop=0,
        optimize=True,
    )
    return TARGET.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.25, help="seconds between two")
    parser.add_argument("--warm", type=float, default=40, help="seconds of load before the first")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        on = stack.enter_context(real("vllm", folder=Path(folder)))
        stack.enter_context(on.load(*LOAD))
        page = stack.enter_context(browsing())
        page.size(WIDTH, HEIGHT, "dark")
        stack.enter_context(page.at(f"http://{on.servers[0].page}/live"))
        page.until("globalThis.kvscopeLive?.store.counts.frames > 3", 60)
        time.sleep(arguments.warm)
        pictures = film(page, arguments.pictures, arguments.pause)
        print("the page's complaints:", page.complaints)
    size = write(pictures, arguments.pause)
    print(f"{TARGET.relative_to(ROOT)}: {len(pictures)} pictures, {size / 1e6:.2f} MB")
    sys.exit(0 if size <= MAX_BYTES else 1)


if __name__ == "__main__":
    main()
