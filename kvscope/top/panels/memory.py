"""The ledger of each GPU's memory: components that add up to its total."""

from rich.text import Text

from exporter import words
from kvscope.top.pool_strip import Part, legend_of, strip
from kvscope.top.situation import Panel, Situation, Watched, wrapped
from kvscope_events.printable import quoted

_COMPONENTS = {
    "weights": ("weights", "█", "color(141)"),
    "kv_pool": ("KV pool", "█", "color(208)"),
    "server_process": ("server", "█", "color(208)"),
    "torch_live_other": ("torch, live", "▓", "color(220)"),
    "torch_pending": ("torch, pending", "▓", "color(184)"),
    "torch_cached": ("torch, cached", "▒", "color(148)"),
    "non_torch": ("outside torch", "▒", "color(108)"),
    "other_processes": ("other processes", "▓", "color(203)"),
    "unsplit": ("not split", "▒", "color(245)"),
    "unattributed": ("unattributed", "░", "color(245)"),
    "driver_reserved": ("driver", "x", "color(245)"),
    "free": ("free", "·", "color(245)"),
}
"""Component to name, glyph and style, in the order of the bar."""


def _devices(watched: Watched) -> dict[str, str]:
    """uuid to name, of the GPUs whose memory is split."""
    uuids = watched.figures.by("uuid", "kvscope_gpu_memory_component_bytes")
    return {uuid: _name(watched, uuid) for uuid in uuids}


def _name(watched: Watched, uuid: str) -> str:
    info = watched.figures.info("kvscope_gpu_info", uuid=uuid)
    return f"GPU {quoted(info.get('gpu', '?'))} {quoted(info.get('name', ''))}".strip()


def _parts(watched: Watched, uuid: str) -> list[Part]:
    sizes = watched.figures.by("component", "kvscope_gpu_memory_component_bytes", uuid=uuid)
    return [
        Part(name, glyph, style, max(0.0, sizes[component]))
        for component, (name, glyph, style) in _COMPONENTS.items()
        if sizes.get(component)
    ]


def _note(situation: Situation) -> str:
    number = len(_devices(situation.here))
    return "" if number < 2 else f"{number} GPUs"


def _body(situation: Situation, width: int) -> list[Text]:
    watched = situation.here
    lines: list[Text] = []
    for uuid, name in _devices(watched).items():
        parts = _parts(watched, uuid)
        whole = sum(part.blocks for part in parts)
        head = Text(name, "bold")
        head.append(f"  {words.size(whole)}")
        headroom = watched.figures.value("kvscope_gpu_memory_headroom_bytes", uuid=uuid)
        said = words.NOT_REPORTED if headroom is None else words.size(headroom)
        head.append(f", headroom {said}")
        busy = watched.figures.value("kvscope_gpu_utilization_ratio", uuid=uuid)
        if busy is not None:
            head.append(f", busy {words.share(busy)}")
        lines += [head, *strip(parts, width, 1), *legend_of(parts, width, words.size)]
    totals = watched.figures.by("uuid", "kvscope_gpu_memory_total_bytes")
    for uuid in totals.keys() - _devices(watched).keys():
        free = watched.figures.value("kvscope_gpu_memory_free_bytes", uuid=uuid)
        line = Text().append(_name(watched, uuid), "bold")
        lines.append(line.append(f"  {words.size(totals[uuid])}, {words.size(free)} free"))
        lines += wrapped("The page does not split it by what holds it.", width, "dim")
    return lines or _without_gpu(watched, width)


def _without_gpu(watched: Watched, width: int) -> list[Text]:
    """The memory that the pool was sized from, and the process's."""
    lines = wrapped("No GPU is reported.", width, "dim")
    terms = watched.figures.by("term", "kvscope_kv_pool_sizing_bytes")
    for term, value in terms.items():
        lines.append(Text(f"{term.replace('_', ' '):<24}{words.size(value):>12}"))
    resident = watched.figures.value("kvscope_host_memory_resident_bytes")
    if resident is not None:
        lines.append(Text(f"{'resident in the host':<24}{words.size(resident):>12}"))
    return lines


MEMORY = Panel(
    key="memory",
    title="Memory",
    help="Every GPU's memory by what holds it; the parts add up to the device's. Headroom is the "
    "most that the next allocation can get.",
    least=3,
    most=24,
    note=_note,
    body=_body,
)
