"""How many referenced blocks lost their names, and why: content that cannot be found any more."""

from typing import get_args

from exporter.fold.fold import Fold
from kvscope_events.events import ContentDropped
from kvscope_events.vocabulary import ContentCause


class Content(Fold):
    """Blocks by cause. What was lost in a gap is not in them."""

    name = "content"

    def __init__(self) -> None:
        super().__init__({ContentDropped: self._dropped})
        self.dropped: dict[str, int] = dict.fromkeys(get_args(ContentCause), 0)

    def _dropped(self, event: ContentDropped) -> None:
        # A producer of names alone has no block ids.
        self.dropped[event.cause] += max(len(event.blocks), len(event.hashes))
