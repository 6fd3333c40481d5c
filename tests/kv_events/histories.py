"""Random histories of a cache, and a brute-force count of what it then holds."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import strategies as st

from tests.kv_events.dialects import Cleared, Dialect, Removed, Said, Stored

MEDIA = {"GPU": "device", "gpu": "device", "CPU": "host", "cpu": "host", "CPU_PINNED": "host"}
MEDIA |= {"DISK": "disk", "FS": "disk", "STORAGE": "remote", "OBJ": "remote"}
MEDIA |= {"EXTERNAL": "remote", "abacus": "other"}

_blocks = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(tuple)
_media = st.sampled_from(sorted(MEDIA))
_groups = st.integers(0, 2)
_event = st.one_of(
    st.builds(Stored, _blocks, st.none() | st.integers(0, 12), _media, _groups),
    st.builds(Removed, _blocks, _media, _groups),
    st.builds(Cleared),
)
histories = st.lists(st.lists(_event, max_size=6), max_size=20)
"""Messages of events; removals of what is not held and several copies of a name among them."""


class Count:
    """A counter for each tier, group and block, and nothing clever."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.held: Counter[tuple[str, int, int]] = Counter()
        self.stored: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()

    def apply(self, history: Iterable[Iterable[Said]]) -> "Count":
        for message in history:
            for event in message:
                self._apply(event)
        return self

    def blocks(self, tier: str) -> int:
        return sum(count for key, count in self.held.items() if key[0] == tier)

    def names(self, tier: str) -> int:
        return sum(key[0] == tier for key in self.held)

    def _apply(self, event: Said) -> None:
        if isinstance(event, Cleared):
            for key in [key for key in self.held if key[0] == "device"]:
                del self.held[key]
            return
        tier = MEDIA[event.medium] if self._dialect.has_media else "device"
        for block in event.blocks:
            key = (tier, event.group if self._dialect.has_groups else 0, block)
            if isinstance(event, Stored):
                self.stored[tier] += 1
                self.held[key] += 1
            else:
                self.removed[tier] += 1
                if self.held[key] <= 1:
                    del self.held[key]
                else:
                    self.held[key] -= 1
