"""The five largest of many by label and the rest combined, as counters that never fall.

Every token is counted once, when it is credited: by the label of its owner while that is among the
five, otherwise in `other`. A label that leaves the five takes its count along, and resumes from
there if it comes back; if the count went to `other`, a rate would show it a second time.
"""

from typing import Protocol

SHOWN = 5
REMEMBERED = 1024
"""Counts of labels that have left, kept for their return; older ones would begin at 0 again."""


class Owner(Protocol):
    """A prefix, a tenant, an adapter."""

    @property
    def label(self) -> str: ...

    @property
    def credited_tokens(self) -> int:
        """All that it was credited with since it got its counter; only grows."""
        ...


class TopOwners:
    """An owner enters once it has a quarter more than the least of the five, so few do."""

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        """Tokens of the five, by label."""
        self.other = 0
        self.left: dict[str, int] = {}
        """Counts of labels that are no longer shown."""
        self._owners: dict[str, Owner] = {}  # those of `tokens`
        # At most five times the tokens of the least of the five, which only grow.
        self._bar = 0

    def credit(self, owner: Owner, tokens: int) -> None:
        """These tokens are the owner's, which has already counted them."""
        label = owner.label
        if label in self.tokens or self._enter(owner, label):
            self.tokens[label] += tokens
        else:
            self.other += tokens

    def remove(self, owner: Owner) -> None:
        """An owner lost its counter."""
        if self._owners.get(owner.label) is owner:
            self._leave(owner.label)
            self._bar = 0

    def _enter(self, owner: Owner, label: str) -> bool:
        owners = self._owners
        if len(owners) == SHOWN:
            if 4 * owner.credited_tokens <= self._bar:
                return False
            least = min(owners, key=lambda shown: owners[shown].credited_tokens)
            self._bar = 5 * owners[least].credited_tokens
            if 4 * owner.credited_tokens <= self._bar:
                return False
            self._leave(least)
        owners[label] = owner
        self.tokens[label] = self.left.pop(label, 0)
        return True

    def _leave(self, label: str) -> None:
        del self._owners[label]
        self.left[label] = self.tokens.pop(label)
        if len(self.left) > REMEMBERED:
            del self.left[next(iter(self.left))]
