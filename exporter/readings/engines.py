"""Assigns samples to engines: those on a page, each with its own labels.

A server's front end has series for all its engines together. With one engine they are its own; with
several they are kept separately, under the labels that they have, and under the model's name if all
engines share it.
"""

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

from exporter.readings.row import Identity
from exporter.readings.samples import Samples
from exporter.readings.value import Labels, Sample
from kvscope_events.limits import MAX_LABEL

MAX_ENGINES = 256
"""Engines of one page; a Ray page has all replicas of a node, even those that ended long ago."""
_UNKNOWN = frozenset({"", "undefined", "None"})

Engine = tuple[str, str]
"""model_name and engine; empty if not on the page."""


class Sorted(NamedTuple):
    by_engine: dict[Engine, Samples]
    num_refused: int
    """Engines beyond the bound, and samples with names too long for one; they are left out."""


class _Owned(NamedTuple):
    name: str
    sample: Sample
    model_name: str | None
    engine: str | None
    rank: tuple[int, ...]


def sort_by_engine(page: Samples, identity: Identity, model_name: str = "") -> Sorted:
    """model_name: used if no sample has it."""
    owned = [
        _Owned(
            name,
            (labels, value),
            _first(labels, identity.model_name),
            _first(labels, identity.engine),
            tuple(_rank(labels.get(rank, "")) for rank in identity.ranks),
        )
        for name, samples in page.by_name.items()
        for labels, value in samples
        if _is_short(labels, identity)
    ]
    # A missing label is the same for all of them.
    if all(o.model_name is None for o in owned):
        owned = [o._replace(model_name=model_name) for o in owned]
    if all(o.engine is None for o in owned):
        owned = [o._replace(engine=identity.alone) for o in owned]
    engines = _engines(owned)
    kept = engines[:MAX_ENGINES]
    count = len(engines)
    models = {model for model, _ in engines}
    only_model = models.pop() if len(models) == 1 else ""
    by_engine = {engine: Samples(spoiled=page.spoiled, num_engines=count) for engine in kept}
    leaders: dict[tuple[str, Engine], tuple[int, ...]] = {}
    for name, sample, model, engine, rank in owned:
        if model is not None and engine is not None:
            owners = [(model, engine)]
        else:
            owners = [e for e in kept if model in (None, e[0]) and engine in (None, e[1])]
            if len(owners) > 1 or count > len(kept):
                owners = [(model or only_model, engine or "")]
                if len(by_engine) < 2 * MAX_ENGINES:
                    of_several = Samples(spoiled=page.spoiled, num_engines=count)
                    by_engine.setdefault(owners[0], of_several)
        for owner in owners:
            found = by_engine.get(owner)
            if found is None:
                continue
            leader = leaders.setdefault((name, owner), rank)
            if rank < leader:
                leaders[name, owner] = rank
                found.by_name[name] = [sample]
            elif rank == leader:
                found.by_name.setdefault(name, []).append(sample)
    num_unnamed = sum(map(len, page.by_name.values())) - len(owned)
    return Sorted(by_engine, count - len(kept) + num_unnamed)


def _engines(owned: Sequence[_Owned]) -> list[Engine]:
    """In the order of the page."""
    pairs = dict.fromkeys(
        (o.model_name, o.engine) for o in owned if o.model_name is not None and o.engine is not None
    )
    if pairs:
        return list(pairs)
    models = dict.fromkeys(o.model_name for o in owned if o.model_name is not None)
    engines = dict.fromkeys(o.engine for o in owned if o.engine is not None)
    # Never merged: one more than the bound shows that there are more.
    return list(islice(product(models, engines), MAX_ENGINES + 1))


def _first(labels: Labels, names: Sequence[str]) -> str | None:
    for name in names:
        value = labels.get(name, "")
        if value not in _UNKNOWN:
            return value
    return None


def _is_short(labels: Labels, identity: Identity) -> bool:
    """Whether its names are short enough to be labels of everything that is read."""
    names = (*identity.model_name, *identity.engine)
    return all(len(labels.get(name, "")) <= MAX_LABEL for name in names)


def _rank(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
