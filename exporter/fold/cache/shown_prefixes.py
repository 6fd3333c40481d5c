"""Five prefixes by label and the rest combined, as counters that never fall.

Every saved token is counted once, when it is saved: by the label of its prefix while that is among
the five, otherwise in `other`. A prefix that leaves the five takes its count along, and resumes
from there if it comes back; if the count went to `other`, a rate would show it as saved a second
time.
"""

from exporter.fold.cache.prefix_table import Prefix

SHOWN = 5
REMEMBERED = 1024
"""Counts of labels that have left, kept for their return; older ones would begin at 0 again."""


class ShownPrefixes:
    """A prefix enters once it has saved a quarter more than the least of the five, so few do."""

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        """Saved tokens of the five, by label."""
        self.other = 0
        self.left: dict[str, int] = {}
        """Counts of labels that are no longer shown."""
        self._prefixes: dict[str, Prefix] = {}  # those of `tokens`
        # At most five times the savings of the least of the five, which only grow.
        self._bar = 0

    def credit(self, prefix: Prefix, tokens: int) -> None:
        """A prefix saved these tokens, which it has already counted."""
        label = prefix.label
        if label in self.tokens or self._enter(prefix, label):
            self.tokens[label] += tokens
        else:
            self.other += tokens

    def remove(self, prefix: Prefix) -> None:
        """A prefix lost its counter."""
        if self._prefixes.get(prefix.label) is prefix:
            self._leave(prefix.label)
            self._bar = 0

    def _enter(self, prefix: Prefix, label: str) -> bool:
        prefixes = self._prefixes
        if len(prefixes) == SHOWN:
            if 4 * prefix.saved_tokens <= self._bar:
                return False
            least = min(prefixes, key=lambda shown: prefixes[shown].saved_tokens)
            self._bar = 5 * prefixes[least].saved_tokens
            if 4 * prefix.saved_tokens <= self._bar:
                return False
            self._leave(least)
        prefixes[label] = prefix
        self.tokens[label] = self.left.pop(label, 0)
        return True

    def _leave(self, label: str) -> None:
        del self._prefixes[label]
        self.left[label] = self.tokens.pop(label)
        if len(self.left) > REMEMBERED:
            del self.left[next(iter(self.left))]
