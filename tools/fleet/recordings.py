"""The runs that a fleet's days are made of: healthy at four loads, and under each fault."""

from collections.abc import Callable, Iterable
from pathlib import Path

from exporter.machine.gpu import Reading
from tools.fleet.cards import read_cards
from tools.fleet.day import LEVELS, LOADING
from tools.fleet.engine import Load
from tools.fleet.recording import Recording, record, record_loading

STORM, CROWDED, HALF_SPEED, THROTTLED = "storm", "crowded", "half speed", "throttled"
CLOSED = "closed"
LOADS = {
    **{
        name: Load(calls_per_second=rate)
        for name, rate in zip(LEVELS, (1.5, 3.0, 4.0, 4.7), strict=True)
    },
    STORM: Load(calls_per_second=9.0, again_seconds=2.0),
    CROWDED: Load(calls_per_second=4.3, blocks=750, queue=1000),
    HALF_SPEED: Load(calls_per_second=2.0, slower=2.0),
    THROTTLED: Load(calls_per_second=3.0, slower=1.3),
    CLOSED: Load(calls_per_second=5.0, clients=22),
}
"""A server that refuses nothing and keeps its promises serves five calls a second."""


def record_all(
    folder: Path, minutes: float, say: Callable[[str], None], names: Iterable[str] = LOADS
) -> dict[str, Recording]:
    """By name, with the page of a server that loads. folder: for the driver's double."""
    cards: Reading = read_cards(folder)
    recordings = {}
    for number, name in enumerate(names):
        say(f"recording {name}: {minutes:g} min of {LOADS[name].calls_per_second:g} calls/s")
        recordings[name] = record(LOADS[name], cards, seed=number, minutes=minutes)
    recordings[LOADING] = record_loading(cards)
    return recordings
