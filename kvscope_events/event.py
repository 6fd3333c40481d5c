"""The base of all events of the contract."""

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    """Base of all events; on the wire an array that begins with the class name."""
