"""Room for the largest step in the free memory of its device."""

from dataclasses import dataclass

from kvscope_exporter.adviser.facts import Facts, Room


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRoom:
    """The device with the least room for a step."""

    room: Room
    tokens: int
    """Tokens of the largest step that was tried."""
    bytes_per_token: float
    errors: int
    """Steps that ran out of memory in the window."""

    @property
    def takes_bytes(self) -> int:
        return int(self.tokens * self.bytes_per_token)

    @property
    def is_short(self) -> bool:
        """Whether it does not fit, or did not and would only just."""
        left = self.room.free_bytes - self.takes_bytes
        return left < 0 or (self.errors > 0 and left < self.room.margin_bytes)

    @property
    def fitting_tokens(self) -> int:
        """Tokens of the largest step that leaves the margin."""
        return max(0, int((self.room.free_bytes - self.room.margin_bytes) / self.bytes_per_token))


def step_room(facts: Facts) -> StepRoom | None:
    """The tightest device; None: the memory of a step is not known."""
    load, largest = facts.load, facts.largest_step
    room = min(facts.rooms, key=lambda r: r.free_bytes - r.largest_step_bytes, default=None)
    if load is None or not load.largest_step or not largest:
        return None
    if room is None or not room.largest_step_bytes:
        return None
    return StepRoom(
        room=room,
        tokens=max(load.largest_step, load.largest_failure),
        bytes_per_token=max(room.largest_step_bytes / largest, load.wanted_per_token),
        errors=load.out_of_memory,
    )
