"""Frames of a KV event stream and of its replays, in every form that servers send.

A live message is topic, number, payload. A replayed one is the same after an empty frame; servers
from before mid-2026 omit the topic. The end of a replay has the number 2^64 - 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

SEQ_BYTES = 8
END = (1 << 64) - 1
_LIVE_FRAMES = 3
_ANSWER_FRAMES = (3, 4)
MAX_FRAMES = 4
"""Frames kept of one message; one with more does not belong to such a stream."""
MAX_FRAME_BYTES = 32 << 20
"""Maximum bytes of a message; the largest real ones name a whole flushed pool: a few megabytes."""


class Message(NamedTuple):
    """A number and what came with it."""

    seq: int
    payload: bytes

    @property
    def is_end(self) -> bool:
        return self.seq == END


def read_live(frames: Sequence[bytes]) -> Message | None:
    """A message of the stream; None if it is not one."""
    if len(frames) != _LIVE_FRAMES or len(frames[1]) != SEQ_BYTES:
        return None
    message = Message(int.from_bytes(frames[1], "big"), frames[2])
    return None if message.is_end else message


def read_answer(frames: Sequence[bytes]) -> Message | None:
    """A message of a replay, or its end; None if it is neither."""
    if len(frames) not in _ANSWER_FRAMES or frames[0] or len(frames[-2]) != SEQ_BYTES:
        return None
    return Message(int.from_bytes(frames[-2], "big"), frames[-1])


def request_from(seq: int) -> list[bytes]:
    """Ask for all messages from this one on."""
    return [b"", seq.to_bytes(SEQ_BYTES, "big")]
