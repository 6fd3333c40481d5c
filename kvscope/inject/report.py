"""The outcome of `kvscope inject`: a line for each object, and an exit code."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvscope.inject.edit import Editor
from kvscope.inject.tree import LeftAloneError

LEFT_ALONE = "left alone: "
"""Before the reason in the line of a server that is not changed."""
UNOBSERVED = 1
"""Exit status if a server was left alone, or no server was found."""
Place = tuple[int, int | str]
"""An object's number in its document, and in it the number of a pod or the name of a service."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The servers of an object that are observed already."""

    number: int
    """The object's, in its document."""
    words: Mapping[Place, str] = field(default_factory=dict)
    """A word for each that is observed again, by which the report says what that changes."""
    kept: Mapping[Place, str] = field(default_factory=dict)
    """Those that stay as they were, with the reason; empty: they were not asked for."""

    def place(self, inner: int | str) -> Place:
        return self.number, inner


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
    containers: list[str] = field(default_factory=list)
    """Names of their containers, which --container may take."""
    hints: dict[str, None] = field(default_factory=dict)
    """Lines about all servers, each once."""
    places: set[Place] = field(default_factory=set)
    """Servers of one document for which something was done."""
    reasons: dict[Place, str] = field(default_factory=dict)
    """The reasons for which servers of one document were left alone."""

    def did(self, name: str, text: str, place: Place) -> None:
        self.done += 1
        self.places.add(place)
        self.lines.append(f"{name}: {text}")

    def left(self, name: str, reason: object, place: Place | None = None) -> None:
        """A server that is not changed, though it was to be."""
        self.refused += 1
        if place is not None:
            self.reasons[place] = str(reason)
        self.note(name, f"{LEFT_ALONE}{reason}")

    def keeps(self, turn: Turn, place: Place, name: str) -> bool:
        """Whether the server stays as it is observed now, which is said."""
        reason = turn.kept.get(place)
        if reason:
            self.left(name, f"{reason}. It stays observed as it was", place)
        elif reason is not None:
            self.note(name, "stays observed as it was, since another container was asked for")
        return reason is not None

    @contextmanager
    def removal(self, name: str, edit: Editor, place: Place) -> Iterator[None]:
        """The block takes them off one server, which keeps all of them if it is left alone."""
        checkpoint = edit.checkpoint()
        try:
            yield
        except LeftAloneError as error:
            edit.back_to(checkpoint)
            self.left(name, error, place)
            return
        if edit.checkpoint() > checkpoint:
            self.did(name, "observer and sidecar removed", place)
        else:
            self.others.append(name)

    def add(self, other: "Report") -> None:
        """Count another document's as well."""
        self.lines += other.lines
        self.done += other.done
        self.refused += other.refused
        self.others += other.others

    def unrecognised(self, name: str, containers: Sequence[str]) -> None:
        """An object or a service whose containers start no server that we know."""
        self.others.append(name)
        self.containers += containers

    def note(self, name: str, text: str) -> None:
        """A line for a person, once for all pods of an object."""
        if f"{name}: {text}" not in self.lines:
            self.lines.append(f"{name}: {text}")

    def summary(self, *, is_removal: bool) -> list[str]:
        """All lines; what runs no server in one."""
        lines = [*self.lines]
        if self.others:
            what = "nothing of kvscope" if is_removal else "no vLLM or SGLang that is recognised"
            names = ", ".join(dict.fromkeys(self.others))
            lines.append(f"left alone, with {what}: {names}")
        if not self.is_written(is_removal):
            names = " or ".join(dict.fromkeys(self.containers))
            choice = f" If a container here runs one, name it: --container {names}" if names else ""
            lines.append(f"nothing is written, since no server was observed.{choice}")
        return [*lines, *self.hints]

    def is_written(self, is_removal: bool) -> bool:
        """Whether there is a result to hand on. Without one, the file itself would be applied by a
        pipeline, which does not see the exit status."""
        return self.done > 0 or is_removal

    def exit_code(self, is_removal: bool) -> int:
        complete = self.done > 0 or is_removal
        return 0 if complete and not self.refused else UNOBSERVED
