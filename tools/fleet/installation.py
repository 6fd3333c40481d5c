"""The rules as an installation has them that runs this fleet: one of its models scales to zero."""

from typing import Any

from alerts.objectives import Objectives
from alerts.rules import mapping

TO_ZERO = "night"


def rule_groups() -> list[Any]:
    """The groups of its rule file."""
    objectives = Objectives(to_zero=frozenset({TO_ZERO}))
    groups: Any = mapping(objectives=objectives)["groups"]
    return list(groups)
