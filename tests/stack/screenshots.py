"""`python -m tests.stack.screenshots`: every dashboard in every situation, looked at in Chromium.

All pictures go to build/screenshots; those of docs/images are drawn anew, with all their colours.
Needs tools/render built, and Chromium.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tests.stack.situations import ROOT, SCRAPE_SECONDS, Window, play, stage

RENDERER = ROOT / "tools" / "render"
EVERYTHING = ROOT / "build" / "screenshots"
IMAGES = ROOT / "docs" / "images"
WIDTH = 1600


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One of docs/images."""

    dashboard: str
    situation: str
    until: int | None = None
    """The row, by its id, above which the picture ends; None: all of it."""
    panels: tuple[int, ...] = ()
    """Only these, one above the other."""


PICTURES = {
    "overview-healthy": Picture(dashboard="overview", situation="healthy", until=500),
    "overview-pressure": Picture(dashboard="overview", situation="pressure", until=500),
    "overview-incident": Picture(dashboard="overview", situation="incident", until=500),
    "kv-pool-pressure": Picture(dashboard="kv-pool", situation="pressure", until=400),
    "prefix-cache-pressure": Picture(dashboard="prefix-cache", situation="pressure", until=700),
    "wall-pressure": Picture(dashboard="wall", situation="pressure"),
    "memory-incident": Picture(dashboard="memory", situation="incident", until=300),
}


def draw(
    url: str, window: Window, picture: Picture, out: Path, *, board: Path | None = None
) -> bool:
    """Whether every query and panel worked; what did not is printed.

    board: the dashboard's file, where it is not one of those that we ship.
    """
    board = board or ROOT / "dashboards" / f"kvscope-{picture.dashboard}.json"
    command = [
        *("node", "render.mjs", str(board)),
        *("--prometheus", url, "--scrape-interval", f"{SCRAPE_SECONDS}s", "--out", str(out)),
        *("--from", str(round(window.began * 1000))),
        *("--to", str(round(window.ended * 1000)), "--width", str(WIDTH)),
        *(f"--panel={panel}" for panel in picture.panels),
    ]
    if picture.until is not None:
        command += ["--until", str(picture.until)]
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
    opaque.save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="of each situation")
    parser.add_argument("--images", action="store_true", help="draw only those of docs/images")
    arguments = parser.parse_args()
    EVERYTHING.mkdir(parents=True, exist_ok=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    boards = sorted(p.stem.removeprefix("kvscope-") for p in (ROOT / "dashboards").glob("*.json"))
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as on:
        windows = {window.name: window for window in play(on, arguments.seconds)}
        good = draw_all(on.prometheus.url, windows, [] if arguments.images else boards)
    sys.exit(0 if good else 1)


def draw_all(url: str, windows: dict[str, Window], boards: list[str]) -> bool:
    """Whether all could be drawn."""
    drawn = []
    for board in boards:
        for name, window in windows.items():
            picture = Picture(dashboard=board, situation=name)
            drawn.append(draw(url, window, picture, EVERYTHING / f"{board}-{name}.png"))
    for name, picture in PICTURES.items():
        out = IMAGES / f"{name}.png"
        drawn.append(draw(url, windows[picture.situation], picture, out))
        shrink(out)
    return all(drawn)


if __name__ == "__main__":
    main()
