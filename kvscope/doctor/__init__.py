"""Findings about what works on this machine and what does not, and why; prints nothing."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem keeps something from working; a note is only worth knowing."""

    subject: str
    status: Status
    text: str
