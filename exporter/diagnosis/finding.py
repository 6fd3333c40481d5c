"""One thing that was looked at."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem keeps something from working; a note is worth knowing."""

    subject: str
    status: Status
    text: str
