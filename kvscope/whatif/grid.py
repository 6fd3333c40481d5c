"""Capacities for a curve where none are given: 1, 2, 5 and their tenfolds."""

DECADES = 3
"""Below the largest capacity; a smaller cache has next to nothing of what that one has."""


def capacities_up_to(largest: int) -> list[int]:
    """About ten capacities over three decades, `largest` the last of them."""
    smallest = largest // 10**DECADES
    found, power = [], 1
    while power < largest:
        found += [step * power for step in (1, 2, 5) if smallest <= step * power < largest]
        power *= 10
    return [*found, largest]
