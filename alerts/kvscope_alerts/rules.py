"""All groups, and the rule file that consists of them."""

from kvscope_alerts.before import before_groups
from kvscope_alerts.edits import Edits
from kvscope_alerts.engine_down import engine_down_groups
from kvscope_alerts.engine_health import engine_groups
from kvscope_alerts.figures import figure_groups
from kvscope_alerts.fleet import fleet_groups
from kvscope_alerts.gpus import gpu_groups
from kvscope_alerts.kv_pool import kv_pool_groups
from kvscope_alerts.memory import memory_groups
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.recordings import recordings
from kvscope_alerts.replicas import replica_groups
from kvscope_alerts.rule import Alert, Group, Places
from kvscope_alerts.server_state import state_groups
from kvscope_alerts.slo import slo_groups
from kvscope_alerts.targets import target_groups
from kvscope_alerts.timing import Timing
from kvscope_alerts.wanted import wanted_records
from kvscope_alerts.yaml_text import to_yaml

HEADER = (
    "Written by `python -m kvscope_alerts` from alerts/kvscope_alerts/*.py: change those. "
    "alerts.md explains."
)


def groups(
    timing: Timing | None = None,
    objectives: Objectives | None = None,
    edits: Edits | None = None,
) -> list[Group]:
    """All groups, in the order of the file."""
    every = _every_group(timing, objectives)
    return edits.applied(every) if edits is not None else every


def _every_group(timing: Timing | None, objectives: Objectives | None) -> list[Group]:
    timing, objectives = timing or Timing(), objectives or Objectives()
    scope = objectives.scope
    below = objectives.page_below
    return [
        *recordings(timing, scope),
        Group(
            name="kvscope-workloads.rules", rules=[*wanted_records(timing, scope)], interval="1m"
        ),
        *target_groups(scope),
        *engine_down_groups(timing, scope, below),
        *state_groups(timing, scope, objectives.loading),
        *engine_groups(timing, scope),
        *fleet_groups(timing, scope, objectives.to_zero),
        *replica_groups(timing, scope),
        *slo_groups(timing, objectives),
        *before_groups(timing, scope),
        *kv_pool_groups(timing),
        *memory_groups(timing, scope),
        *gpu_groups(timing, scope, below),
        *figure_groups(timing, scope),
    ]


def alerts() -> list[Alert]:
    """All alerts as shipped, including each of several rules that share a name."""
    return [rule for group in groups() for rule in group.rules if isinstance(rule, Alert)]


def mapping(
    timing: Timing | None = None,
    places: Places | None = None,
    objectives: Objectives | None = None,
    edits: Edits | None = None,
) -> dict[str, object]:
    """The rule file as data."""
    timing, places = timing or Timing(), places or Places()
    chosen = groups(timing, objectives, edits)
    return {"groups": [group.mapping(timing, places) for group in chosen]}


def rule_file(
    timing: Timing | None = None,
    places: Places | None = None,
    objectives: Objectives | None = None,
    edits: Edits | None = None,
) -> str:
    """The text of `alerts/kvscope.rules.yml`."""
    return to_yaml(mapping(timing, places, objectives, edits), HEADER)
