"""The outcome of `kvscope inject`: a line for each object, and an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvscope.inject.edit import Editor
from kvscope.inject.tree import LeftAloneError

UNOBSERVED = 1
"""Exit status if a server was left alone, or no server was found."""


@dataclass(slots=True)
class Report:
    """Lines for people, and whether every server that was found is observed now."""

    lines: list[str] = field(default_factory=list)
    done: int = 0
    """Servers that are observed now, or from which the observer was removed."""
    refused: int = 0
    """Servers that were left alone."""
    others: list[str] = field(default_factory=list)
    """Objects and services that run no server."""

    def did(self, name: str, text: str) -> None:
        self.done += 1
        self.lines.append(f"{name}: {text}")

    def left(self, name: str, reason: object) -> None:
        """A server that stays unobserved."""
        self.refused += 1
        self.lines.append(f"{name}: left alone: {reason}")

    @contextmanager
    def removal(self, name: str, edit: Editor) -> Iterator[None]:
        """The block takes them off one server, which keeps all of them if it is left alone."""
        checkpoint = edit.checkpoint()
        try:
            yield
        except LeftAloneError as error:
            edit.back_to(checkpoint)
            self.left(name, error)
            return
        if edit.checkpoint() > checkpoint:
            self.did(name, "observer and sidecar removed")
        else:
            self.others.append(name)

    def note(self, name: str, text: str) -> None:
        """A line for a person, once for all pods of an object."""
        if f"{name}: {text}" not in self.lines:
            self.lines.append(f"{name}: {text}")

    def summary(self, is_removal: bool) -> list[str]:
        """All lines; what runs no server in one."""
        if not self.others:
            return self.lines
        what = "nothing of kvscope" if is_removal else "no vLLM or SGLang that is recognised"
        names = ", ".join(dict.fromkeys(self.others))
        return [*self.lines, f"left alone, with {what}: {names}"]

    def exit_code(self, is_removal: bool) -> int:
        complete = self.done > 0 or is_removal
        return 0 if complete and not self.refused else UNOBSERVED
