"""`python -m tools.pictures.screenshots`: every dashboard in every situation, in Chromium.

Of one engine and of fifty, at two widths. All pictures go to build/screenshots; those of
docs/images, of three engines, are redrawn, with all their colours. With `--folder F` what was
measured is kept there, and `--again` draws from it: while a board is changed, nothing has to be
replayed. Needs tools/render built, and Chromium.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import starmap
from pathlib import Path

from PIL import Image

from tests.support.prometheus import Prometheus
from tools.pictures import many
from tools.pictures.situations import (
    ROOT,
    SCRAPE_SECONDS,
    SITUATIONS,
    Window,
    free_port,
    play,
    program,
    prometheus_command,
    stage,
)

RENDERER = ROOT / "tools" / "render"
EVERYTHING = ROOT / "build" / "screenshots"
IMAGES = ROOT / "docs" / "images"
WIDTH = 1280
WIDTHS = (1600, WIDTH)
FLEETS = ("one", "fifty")
BOARDS = sorted(p.stem.removeprefix("kvscope-") for p in (ROOT / "dashboards").glob("*.json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Data for drawing."""

    url: str
    """URL of the Prometheus of three engines."""
    url_of_many: str
    instance: str
    """The engine that things befall, as a value of the label."""
    windows: list[Window]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A dashboard, or a part of it."""

    dashboard: str
    situation: str
    until: int | None = None
    """The row, by its id, above which the picture ends; None: all of it."""
    panels: tuple[int, ...] = ()
    """Only these, one above the other."""
    fleet: str = "three"
    width: int = WIDTH
    """1280: on a page of text all of it can still be read."""


PICTURES = {
    "overview-healthy": Picture(dashboard="overview", situation="healthy", until=400),
    "overview-pressure": Picture(dashboard="overview", situation="pressure", until=400),
    "overview-incident": Picture(dashboard="overview", situation="incident", until=400),
    "overview-fifty": Picture(dashboard="overview", situation="incident", until=400, fleet="fifty"),
    "kv-pool-pressure": Picture(dashboard="kv-pool", situation="pressure", until=300),
    "prefix-cache-pressure": Picture(dashboard="prefix-cache", situation="pressure", until=400),
    "wall-pressure": Picture(dashboard="wall", situation="pressure"),
    "memory-incident": Picture(dashboard="memory", situation="incident", until=300),
}


def draw(
    measured: Measured, window: Window, picture: Picture, out: Path, *, board: Path | None = None
) -> bool:
    """Whether every query and panel worked; what did not is printed.

    board: the dashboard's file, where it is not one of those that we ship.
    """
    board = board or ROOT / "dashboards" / f"kvscope-{picture.dashboard}.json"
    fifty = picture.fleet == "fifty"
    seconds = many.SCRAPE_SECONDS if fifty else SCRAPE_SECONDS
    command = [
        *("node", "render.mjs", str(board), "--scrape-interval", f"{seconds}s"),
        *("--prometheus", measured.url_of_many if fifty else measured.url, "--out", str(out)),
        *("--from", str(round(window.began * 1000))),
        *("--to", str(round(window.ended * 1000)), "--width", str(picture.width)),
        *(f"--panel={panel}" for panel in picture.panels),
    ]
    if picture.until is not None:
        command += ["--until", str(picture.until)]
    if picture.fleet == "one":
        command += ["--var", f"instance={measured.instance}"]
    done = subprocess.run(command, cwd=RENDERER, capture_output=True, text=True, check=False)
    print(f"{out.relative_to(ROOT)}", flush=True)
    for line in (done.stdout + done.stderr).splitlines():
        if not line.startswith("ok"):
            print(f"    {line[:200]}", flush=True)
    return done.returncode == 0


def shrink(path: Path) -> None:
    """As far as it can be without loss."""
    with Image.open(path) as image:
        opaque = image.convert("RGB")
    stride = 3 * opaque.width
    pixels = opaque.tobytes()
    # No filter: lines of a drawing repeat each other, which filters hide; a fifth less than Pillow.
    lines = b"".join(
        b"\0" + pixels[begin : begin + stride] for begin in range(0, len(pixels), stride)
    )
    head = struct.pack(">IIBBBBB", opaque.width, opaque.height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(starmap(_chunk, parts)))


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def draw_all(measured: Measured, pictures: dict[Path, Picture]) -> bool:
    """Whether all could be drawn."""
    windows = {window.name: window for window in measured.windows}
    drawn = []
    for out, picture in pictures.items():
        drawn.append(draw(measured, windows[picture.situation], picture, out))
        if out.is_relative_to(IMAGES):
            shrink(out)
    return all(drawn)


def measure(folder: Path, seconds: float) -> None:
    """Play all situations, and leave in the folder what is drawn from."""
    with stage(folder, with_many=True) as on:
        windows = [asdict(window) for window in play(on, seconds)]
        instance = on.url.removeprefix("http://")
    (folder / "measured.json").write_text(json.dumps({"instance": instance, "windows": windows}))


@contextmanager
def measured_in(folder: Path) -> Iterator[Measured]:
    """Start only Prometheus, on the data of a play: nothing else runs while pictures are drawn."""
    former = json.loads((folder / "measured.json").read_text())
    nothing = folder / "nothing.yml"
    nothing.write_text("scrape_configs: []\n")
    urls = []
    with ExitStack() as stack:
        for data in (folder, folder / "many"):
            port = free_port()
            running = Prometheus(f"http://127.0.0.1:{port}")
            command = prometheus_command(data, nothing, port)
            stack.enter_context(program("drawing", command, data, os.environ, running.ready))
            urls.append(running.url)
        windows = [Window(**window) for window in former["windows"]]
        url, url_of_many = urls
        yield Measured(
            url=url, url_of_many=url_of_many, instance=former["instance"], windows=windows
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="of each situation")
    parser.add_argument("--images", action="store_true", help="draw only those of docs/images")
    parser.add_argument("--folder", type=Path, help="keep what was measured here")
    parser.add_argument("--again", action="store_true", help="draw what --folder has")
    parser.add_argument("--boards", nargs="*", default=BOARDS, help="not docs/images, only these")
    parser.add_argument("--situations", nargs="*", default=list(SITUATIONS))
    parser.add_argument("--widths", nargs="*", type=int, default=WIDTHS)
    parser.add_argument("--fleets", nargs="*", default=FLEETS)
    arguments = parser.parse_args()
    pictures = {IMAGES / f"{name}.png": picture for name, picture in PICTURES.items()}
    if not arguments.images:
        looked_at = {
            EVERYTHING / f"{board}-{name}-{fleet}-{width}.png": Picture(
                dashboard=board, situation=name, fleet=fleet, width=width
            )
            for board in arguments.boards
            for fleet in arguments.fleets
            for width in arguments.widths
            for name in arguments.situations
        }
        pictures = looked_at | (pictures if arguments.boards is BOARDS else {})
    EVERYTHING.mkdir(parents=True, exist_ok=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        if not arguments.again:
            measure(folder, arguments.seconds)
        good = draw_all(stack.enter_context(measured_in(folder)), pictures)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
