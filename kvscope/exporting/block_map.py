"""The map of a pool at one moment, as SVG: a square for each block, or for several of many."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from math import ceil, sqrt
from xml.etree.ElementTree import Element, SubElement

from exporter.live.cells import CACHED, FREE, RESERVED

MOST_SQUARES = 8192
"""More would be too small to see, and too many to load."""
_SHAPE = 5
"""Squares across for one down."""
_WIDTH = 1000
_STATES = {"free": "c2", "cached": "c3", "active": "c0", "shared": "c4", "reserved": "c1"}
"""Classes of the style, in the order of the legend."""


def block_map(title: str, cells: bytes) -> Element:
    """cells: the state of each block, as in `exporter.live.cells`."""
    each = ceil(len(cells) / MOST_SQUARES)
    states = [_state(cell) for cell in cells]
    squares = [
        Counter(states[begin : begin + each]).most_common(1)[0][0]
        for begin in range(0, len(states), each)
    ]
    across = max(1, min(len(squares), ceil(sqrt(len(squares) * _SHAPE))))
    size = _WIDTH / across
    figure = Element("figure", {"class": "blocks"})
    caption = SubElement(figure, "figcaption")
    caption.text = title if each == 1 else f"{title}; a square is most of {each} blocks"
    counts = Counter(states)
    for state, colour in _STATES.items():
        if counts[state]:
            key = SubElement(caption, "span", {"class": f"key {colour}"})
            key.text = f"{state} {counts[state]:,}"
    height = ceil(len(squares) / across) * size
    chart = SubElement(
        figure,
        "svg",
        {"viewBox": f"0 0 {_WIDTH} {height:.1f}", "role": "img", "aria-label": title},
    )
    gap = min(2.0, size / 6)
    look = {"stroke-width": f"{size - gap:.2f}", "stroke-dasharray": f"{size - gap:.2f} {gap:.2f}"}
    for state, colour in _STATES.items():
        path = "".join(_runs(squares, state, across, size))
        if path:
            SubElement(chart, "path", {"class": f"squares {colour}", "d": path, **look})
    return figure


def _state(cell: int) -> str:
    if cell > CACHED:
        return "active" if cell == CACHED + 1 else "shared"
    return {FREE: "free", RESERVED: "reserved", CACHED: "cached"}[cell]


def _runs(squares: list[str], state: str, across: int, size: float) -> Iterator[str]:
    """Lines through neighbours in a row that have this state; their dashes are the squares."""
    for begin in range(0, len(squares), across):
        place = 0
        for found, run in groupby(squares[begin : begin + across]):
            length = len(list(run))
            if found == state:
                y = (begin / across + 0.5) * size
                yield f"M{place * size:.1f} {y:.1f}h{length * size:.1f}"
            place += length
