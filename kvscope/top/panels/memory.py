"""The ledger of each GPU's memory: components that add up to its total."""

from rich.text import Text

from kvscope.top.figures import Figures
from kvscope.top.pool_strip import Part, legend_of, strip
from kvscope.top.situation import Panel, Situation, wrapped
from kvscope_events.printable import quoted
from kvscope_exporter import words

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


def _body(situation: Situation, answer: None, width: int) -> tuple[str, list[Text]]:
    figures, lines = situation.here.figures, list[Text]()
    split = figures.by("uuid", "kvscope_gpu_memory_component_bytes")
    totals = figures.by("uuid", "kvscope_gpu_memory_total_bytes")
    for uuid in {**split, **totals}:
        info = figures.info("kvscope_gpu_info", uuid=uuid)
        name = f"GPU {quoted(info.get('gpu', '?'))} {quoted(info.get('name', ''))}".strip()
        lines.append(Text().append(name, "bold"))
        if uuid in split:
            lines += _split(figures, uuid, width, lines[-1])
        else:
            free = figures.value("kvscope_gpu_memory_free_bytes", uuid=uuid)
            lines[-1].append(f"  {words.size(totals[uuid])}, {words.size(free)} free")
            lines += wrapped("The page does not split it by what holds it.", width, "dim")
    return f"{len(split)} GPUs" if len(split) > 1 else "", lines or _without_gpu(figures)


def _split(figures: Figures, uuid: str, width: int, head: Text) -> list[Text]:
    """The bar and its legend. head: gets the sums."""
    sizes = figures.by("component", "kvscope_gpu_memory_component_bytes", uuid=uuid)
    parts = [
        Part(*shown, max(0.0, sizes[component]))
        for component, shown in _COMPONENTS.items()
        if sizes.get(component)
    ]
    headroom = figures.value("kvscope_gpu_memory_headroom_bytes", uuid=uuid)
    busy = figures.value("kvscope_gpu_utilization_ratio", uuid=uuid)
    said = words.NOT_REPORTED if headroom is None else words.size(headroom)
    head.append(f"  {words.size(sum(part.amount for part in parts))}, headroom {said}")
    head.append("" if busy is None else f", busy {words.share(busy)}")
    return [strip(parts, width), *legend_of(parts, words.size, width)]


def _without_gpu(figures: Figures) -> list[Text]:
    """The memory that the pool was sized from, and the process's."""
    terms = figures.by("term", "kvscope_kv_pool_sizing_bytes")
    rows = {term.replace("_", " "): value for term, value in terms.items()}
    resident = figures.value("kvscope_host_memory_resident_bytes")
    if resident is not None:
        rows["resident in the host"] = resident
    lines = [Text(f"{quoted(name):<24}{words.size(value):>12}") for name, value in rows.items()]
    return [Text("No GPU is reported.", "dim"), *lines]


MEMORY = Panel(
    "Memory",
    "Every GPU's memory by what holds it; the parts add up to the device's. Headroom is the most "
    "that the next allocation can get.",
    _body,
)
