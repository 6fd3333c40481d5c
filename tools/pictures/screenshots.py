"""`python -m tools.pictures.screenshots`: the pictures of docs/images, drawn in Chromium.

By default those of our engine; `--of servers` (a vLLM and an SGLang side by side, `make vllm
sglang`), `--of hybrid` (a vLLM with several kinds of layers) and `--of pages --pages DIR` (a vLLM
that ran elsewhere, from what `python -m benchmarks.on_a_gpu --only vllm-served --out DIR` has kept;
without rules) draw the others. With `--all` every board in every situation goes to
build/screenshots as well. Needs tools/render built, and Chromium.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from PIL import Image

from benchmarks.on_a_gpu.pages import EVERY_SECONDS, read, with_moments
from benchmarks.on_a_gpu.vllm_served import PAGES, WINDOW
from tests.support.prometheus import prometheus_with
from tools.pictures import many
from tools.pictures.situations import SETTLE_SECONDS, STAGES, Window, play
from tools.pictures.stage import ROOT, SCRAPE_SECONDS

RENDERER = ROOT / "tools" / "render"
EVERYTHING = ROOT / "build" / "screenshots"
IMAGES = ROOT / "docs" / "images"
WIDTH = 1280
"""On a page of text all of it can still be read."""
BOARDS = sorted(p.stem.removeprefix("kvscope-") for p in (ROOT / "dashboards").glob("*.json"))


@dataclass(frozen=True, slots=True)
class Picture:
    """A dashboard in a situation, or a part of it."""

    dashboard: str
    situation: str
    until: int | None = None
    """The row, by its id, above which the picture ends; None: all of it."""
    panels: tuple[int, ...] = ()
    """Only these, one above the other."""
    fleet: str = "three"


PICTURES = {
    "overview-healthy": Picture("overview", "healthy", until=400),
    "overview-pressure": Picture("overview", "pressure", until=400),
    "overview-incident": Picture("overview", "incident", until=400),
    "overview-fifty": Picture("overview", "incident", until=400, fleet="fifty"),
    "kv-pool-pressure": Picture("kv-pool", "pressure", until=300),
    "prefix-cache-pressure": Picture("prefix-cache", "pressure", until=400),
    "service-levels-pressure": Picture("service-levels", "pressure", until=300),
    "memory-incident": Picture("memory", "incident", until=400),
    "sglang-overview": Picture("overview", "servers", until=400),
    "vllm-groups": Picture("prefix-cache", "hybrid", panels=(801, 802)),
    "vllm-overview": Picture("overview", "pages", until=400),
    "vllm-kv-pool": Picture("kv-pool", "pages", panels=(201, 305)),
    "vllm-prefix-cache": Picture("prefix-cache", "pages", until=400),
    "vllm-clients": Picture("service-levels", "pages", panels=(401, 402, 403)),
    "vllm-memory": Picture("memory", "pages", until=400),
}


@contextmanager
def of_pages(run: Path) -> Iterator[dict[str, Window]]:
    """The window of a run whose pages were kept, which become blocks of a Prometheus."""
    window = json.loads((run / WINDOW).read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, data = folder / "pages.txt", folder / "data"
        with text.open("w") as file:
            file.writelines(f"{line}\n" for line in with_moments(read(run / PAGES)))
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        keep = "--storage.tsdb.retention.time=100y"  # or what is old is deleted at the start
        with prometheus_with("scrape_configs: []\n", folder, keep) as running:
            began, ended = window["began"] + SETTLE_SECONDS, window["ended"] - EVERY_SECONDS
            yield {"pages": Window(began, ended, {"three": running.url})}


@contextmanager
def of_stage(name: str, seconds: float) -> Iterator[dict[str, Window]]:
    """The windows of all its situations, once they have been played."""
    stage, situations = STAGES[name]
    with tempfile.TemporaryDirectory() as folder, stage(folder=Path(folder)) as on:
        yield play(on, situations, seconds)


def draw(windows: Mapping[str, Window], picture: Picture, out: Path) -> bool:
    """Whether every query and panel worked; what did not is printed."""
    window = windows[picture.situation]
    seconds = many.SCRAPE_SECONDS if picture.fleet == "fifty" else SCRAPE_SECONDS
    command = [
        *("node", "render.mjs", str(ROOT / f"dashboards/kvscope-{picture.dashboard}.json")),
        *("--prometheus", window.seen_by[picture.fleet], "--scrape-interval", f"{seconds}s"),
        *("--from", str(round(window.began * 1000)), "--to", str(round(window.ended * 1000))),
        *("--out", str(out), "--width", str(WIDTH)),
        *(f"--panel={panel}" for panel in picture.panels),
    ]
    if picture.until is not None:
        command += ["--until", str(picture.until)]
    done = subprocess.run(command, cwd=RENDERER, capture_output=True, text=True, check=False)
    print(f"{out.relative_to(ROOT)}", flush=True)
    for line in (done.stdout + done.stderr).splitlines():
        if not line.startswith("ok"):
            print(f"    {line[:200]}", flush=True)
    if out.is_relative_to(IMAGES) and out.exists():
        shrink(out)
    return done.returncode == 0


def shrink(path: Path) -> None:
    """As far as it can be without loss."""
    with Image.open(path) as image:
        opaque = image.convert("RGB")
    stride = 3 * opaque.width
    pixels = opaque.tobytes()
    # No filter: lines of a drawing repeat each other, which filters hide; a fifth less than Pillow.
    lines = b"".join(b"\0" + pixels[at : at + stride] for at in range(0, len(pixels), stride))
    head = struct.pack(">IIBBBBB", opaque.width, opaque.height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(starmap(_chunk, parts)))


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", choices=[*STAGES, "pages"], default="ours")
    parser.add_argument("--pages", type=Path, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=120, help="of each situation")
    parser.add_argument("--all", action="store_true", help="every board in every situation")
    given = parser.parse_args()
    EVERYTHING.mkdir(parents=True, exist_ok=True)
    seen = of_pages(given.pages) if given.of == "pages" else of_stage(given.of, given.seconds)
    with seen as windows:
        pictures = {IMAGES / f"{name}.png": each for name, each in PICTURES.items()}
        if given.all:
            pictures |= {
                EVERYTHING / f"{board}-{name}-{fleet}.png": Picture(board, name, fleet=fleet)
                for name, window in windows.items()
                for fleet in window.seen_by
                for board in BOARDS
            }
        good = [
            draw(windows, picture, out)
            for out, picture in pictures.items()
            if picture.situation in windows
        ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
