"""The answer of an observed process to an order to stop observing, or to go on."""

from typing import Literal

import msgspec

SwitchState = Literal["on", "off", "leaving", "returning", "stopped", "cannot be switched"]
"""leaving, returning: an order that the next step carries out. stopped: by a fault of the
observer's own, which no order undoes. cannot be switched: no order changes it: it stays on, since
it could be taken out in part only, or off, since the engine cannot be observed."""


class SwitchReply(msgspec.Struct, frozen=True, array_like=True):
    """The present state; a reader repeats its order until the state is what it wants."""

    pid: int
    """The process's pid in its own namespace."""
    state: SwitchState
    problem: str = ""
    """The reason why the order cannot be carried out."""

    def is_final(self, *, on: bool) -> bool:
        """Whether to repeat the order would change nothing."""
        return self.state in ("on" if on else "off", "stopped") or bool(self.problem)

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, payload: bytes) -> "SwitchReply":
        """Raises msgspec.ValidationError or msgspec.DecodeError."""
        return msgspec.msgpack.decode(payload, type=cls)
