"""One of N conversations of a fleet, where all of them would be too many to fold.

A conversation is chosen by the hash of its root, the first block of a path that is not a beginning
which many prompts share: requests that can hit each other below it are chosen together, on every
replica. By single blocks, a popular beginning would be in or out as a whole.
"""

from collections.abc import Hashable, Sequence

from kvscope_exporter.state.simulation.roots import Roots

GROUPS = 16
"""Parts of the sample that are summed by themselves: how they differ says how far off it may be."""
_FOLLOWED = 1 << 18
"""Names of a generation: those of some thousand conversations."""
_MIX, _BITS = 0x9E3779B97F4A7C15, 64


class Sample:
    """Nothing is chosen before a first window of prompts has shown what many share."""

    def __init__(self, one_of: int) -> None:
        self.one_of = one_of
        self._roots: Roots[Hashable] = Roots()
        self._early: list[Sequence[Hashable]] = []
        # Names of chosen conversations, by which what is stored behind them is known. The older
        # generation goes when the younger one is full.
        self._young: dict[Hashable, None] = {}
        self._old: dict[Hashable, None] = {}

    @property
    def has_begun(self) -> bool:
        """Whether it chooses already."""
        return self._roots.window > 0

    def learn(self, names: Sequence[Hashable]) -> Sequence[Sequence[Hashable]]:
        """A request before it chooses; returns those so far that it would have chosen, once it
        does. The names are kept for a while, and must not change; so in `look_up`.
        """
        self._roots.learn(names)
        self._early.append(names)
        if not self.has_begun:
            return ()
        early, self._early = self._early, []
        return [path for path in early if self.look_up(path) is not None]

    def look_up(self, names: Sequence[Hashable]) -> int | None:
        """The group of a request's conversation, below `GROUPS`; None: it is not chosen."""
        if not names:
            return None
        self._roots.learn(names)
        above = self._roots.above(names)
        group = self._group(names[min(above, len(names) - 1)])
        if group is not None:
            self._follow(names[above:])
        return group

    def stored(self, names: Sequence[Hashable], parent: Hashable | None) -> Sequence[Hashable]:
        """Those of the names that a chosen request may ask for: consecutive descendants of
        `parent`; None: they begin a path, or it is not known.
        """
        if not self.has_begun or not names:
            return names
        if self._is_followed(parent) or self._is_followed(names[0]):
            self._follow(names)
            return names
        if parent is not None and not self._roots.is_shared(parent):
            return ()
        above = self._roots.above(names)
        if above == len(names):
            return names
        if self._group(names[above]) is None:
            return names[:above]
        self._follow(names[above:])
        return names

    def _is_followed(self, name: Hashable | None) -> bool:
        return name in self._young or name in self._old

    def _follow(self, names: Sequence[Hashable]) -> None:
        self._young.update(dict.fromkeys(names))
        if len(self._young) > _FOLLOWED:
            self._old, self._young = self._young, {}

    def _group(self, root: Hashable) -> int | None:
        mixed = (hash(root) * _MIX) % (1 << _BITS)
        share, rest = divmod(mixed * self.one_of, 1 << _BITS)
        return None if share else rest * GROUPS >> _BITS
