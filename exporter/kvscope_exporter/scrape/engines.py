"""Assigns samples to engines: those on a page, each with its own labels.

A server's front end has series for all its engines together. With one engine they are its own; with
several they are kept separately, under the labels that they have, and under the model's name if all
engines share it.

A gateway repeats the pages of its workers, distinguished by a label that is not the server's own:
then each of them is an engine, whatever the label is called.
"""

import re
from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

from kvscope_events.limits import MAX_LABEL
from kvscope_exporter.scrape.row import Identity
from kvscope_exporter.scrape.samples import Samples
from kvscope_exporter.scrape.value import Labels, Sample

MAX_ENGINES = 256
"""Engines of one page; a Ray page has all replicas of a node, even those that ended long ago."""
_UNKNOWN = frozenset({"", "undefined", "None"})
_OF_A_WORKER = re.compile(
    r"(^|_)(worker|instance|pod|host|hostname|node|replica|backend|server|upstream|target"
    r"|endpoint|address|addr|url|uri|ip|container|engine_id|engine_index|dp_rank)(_|$)",
    re.IGNORECASE,
)
"""Labels that name a process or its address; no other label makes two engines of one."""

Engine = tuple[str, str]
"""model_name and engine; empty if not on the page."""


class EngineSamples(NamedTuple):
    by_engine: dict[Engine, Samples]
    num_refused: int
    """Engines beyond the bound, and samples with names too long for one; they are left out."""


class _OwnedSample(NamedTuple):
    name: str
    sample: Sample
    model_name: str | None
    engine: str | None
    rank: tuple[int, ...]


def sort_by_engine(page: Samples, identity: Identity, model_name: str = "") -> EngineSamples:
    """model_name: used if no sample has it."""
    worker = _worker_label(page, identity) if identity.may_be_repeated else ""
    owned = [
        _OwnedSample(
            name,
            (labels, value),
            _first(labels, identity.model_name),
            _engine_of(labels, identity, worker),
            tuple(_rank(labels.get(rank, "")) for rank in identity.ranks),
        )
        for name, samples in page.by_name.items()
        for labels, value in samples
        if _is_short(labels, identity, worker)
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
    return EngineSamples(by_engine, count - len(kept) + num_unnamed)


def _engines(owned: Sequence[_OwnedSample]) -> list[Engine]:
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


def _worker_label(page: Samples, identity: Identity) -> str:
    """The label that distinguishes the workers of a gateway; empty without several of them.

    Two samples of one name that differ in nothing else are of two workers.
    """
    own = {*identity.model_name, *identity.engine, *identity.ranks}
    words: dict[str, set[str]] = {}
    for samples in page.by_name.values():
        for labels, _ in samples:
            for label, word in labels.items():
                words.setdefault(label, set()).add(word)
    candidates = sorted(
        label
        for label in words.keys() - own
        if _OF_A_WORKER.search(label)
        and len(words[label]) > 1
        # The path of a request, such as /v1/completions, does not name a worker.
        and not any(word.startswith("/") for word in words[label])
    )
    if not candidates:
        return ""
    workers: dict[str, set[str]] = {name: set() for name in candidates}
    for samples in page.by_name.values():
        alike: dict[frozenset[tuple[str, str]], list[Labels]] = {}
        for labels, _ in samples:
            others = frozenset(item for item in labels.items() if item[0] not in workers)
            alike.setdefault(others, []).append(labels)
        for several in alike.values():
            for name in candidates if len(several) > 1 else ():
                workers[name].update(labels.get(name, "") for labels in several)
    most = max(candidates, key=lambda name: len(workers[name] - _UNKNOWN))
    return most if len(workers[most] - _UNKNOWN) > 1 else ""


def _engine_of(labels: Labels, identity: Identity, worker: str) -> str | None:
    own, place = _first(labels, identity.engine), _first(labels, (worker,))
    return own if place is None else "/".join(part for part in (place, own) if part)


def _first(labels: Labels, names: Sequence[str]) -> str | None:
    for name in names:
        value = labels.get(name, "")
        if value not in _UNKNOWN:
            return value
    return None


def _is_short(labels: Labels, identity: Identity, worker: str) -> bool:
    """Whether its names are short enough to be labels of everything that is read."""
    names = (*identity.model_name, *identity.engine, worker)
    return all(len(labels.get(name, "")) <= MAX_LABEL for name in names)


def _rank(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
