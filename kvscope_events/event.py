"""The bases of all events of the contract: one for those of steps, one for facts and states."""

from typing import Any, ClassVar, get_type_hints

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    """Base of all events; on the wire an array that begins with the class name.

    An event of a step or a request is not checked when it is made, since the engine pays for that:
    its numbers are the engine's own, and a reader refuses a batch with an impossible one.
    """


class Fact(Event, frozen=True):
    """An event that a producer makes once a second at most, from figures that others gave it.

    Raises ValueError when it is made with a value that could not be written, or that a reader would
    refuse.
    """

    unchecked: ClassVar[frozenset[str]] = frozenset()
    """Fields with a value for each block, of which there may be millions."""

    def __post_init__(self) -> None:
        kind = type(self)
        mirror = _MIRRORS.get(kind)
        if mirror is None:
            mirror = _MIRRORS[kind] = _mirror(kind)
        names, decode = mirror
        try:
            decode(_encode({name: getattr(self, name) for name in names}))
        except (msgspec.ValidationError, OverflowError, UnicodeEncodeError, TypeError) as error:
            raise ValueError(f"{kind.__name__}: {error}") from None


_encode = msgspec.msgpack.Encoder().encode
_MIRRORS: dict[type, tuple[tuple[str, ...], Any]] = {}


def _mirror(kind: type[Fact]) -> tuple[tuple[str, ...], Any]:
    """The fields to check, and what reads them as a peer would."""
    hints = get_type_hints(kind, include_extras=True)
    names = [name for name in kind.__struct_fields__ if name not in kind.unchecked]
    fields = [(name, hints[name]) for name in names]
    decoder = msgspec.msgpack.Decoder(msgspec.defstruct(kind.__name__, fields))
    return tuple(names), decoder.decode
