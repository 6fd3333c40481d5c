"""Variables of all boards: what is selected, and which service levels curves are compared with."""

from collections.abc import Iterable

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.models import dashboard as dm

from dashboards.kit.links import SOURCE
from dashboards.kit.queries import PLACE
from exporter.buckets import FIRST_TOKEN_SECONDS, INTER_TOKEN_SECONDS

EVERY_ENGINE = "kvscope_source_up"
"""A family that every engine has on its page from the start, even while it loads its model."""

OBJECTIVES = ("95", "99", "99.5", "99.9", "99.95")
"""Percent of the requests that keep a promise."""
ANSWERED, IN_TIME = "99.9", "99"
"""Of the requests, by default: those that are answered, and those that are in time."""
FIRST_TOKEN, TOKEN_GAP = "2.5", "0.5"
"""Seconds that count as in time by default; each is a bound of its histogram."""


def variable(
    name: str, label: str, query: str, help: str, *, every: str = ".+"
) -> db.QueryVariable:
    """A variable with several values or all; its values are those in the time range.

    every: the regular expression that stands for all of them.
    """
    return (
        db.QueryVariable(name)
        .label(label)
        .description(help)
        .datasource(SOURCE)
        .query(query)
        .refresh(dm.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dm.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(every)
        .current(dm.VariableOption(text="All", value="$__all", selected=True))
    )


def place_variables(family: str) -> list[db.QueryVariable]:
    """Cluster, namespace and pod, each limited by those before. family: one of every engine.

    All of them also stands for series without the label, which only Kubernetes has.
    """
    labels = {
        "cluster": "External label of a Prometheus, where several report to one place.",
        "namespace": "Of Kubernetes.",
        "pod": "Of Kubernetes.",
    }
    found, chosen = [], ""
    for label, help in labels.items():
        among = f"{family}{{{chosen}}}" if chosen else family
        query = f"label_values({among}, {label})"
        found.append(variable(label, label.capitalize(), query, help, every=".*"))
        chosen = ",".join(part for part in (chosen, f'{label}=~"${label}"') if part)
    return found


def engine_variables(family: str) -> list[db.QueryVariable]:
    """Model, server and engine, each limited by those before. family: one that every engine has."""
    model, server = f'{PLACE},model_name=~"$model"', 'instance=~"$instance"'
    return [
        variable(
            "model",
            "Model",
            f"label_values({family}{{{PLACE}}}, model_name)",
            "Name that requests ask for.",
        ),
        variable(
            "instance",
            "Server",
            f"label_values({family}{{{model}}}, instance)",
            "Address that Prometheus scrapes.",
        ),
        variable(
            "engine",
            "Engine",
            f"label_values({family}{{{model},{server}}}, engine)",
            "Number of the engine in its server; 0 where there is only one.",
        ),
    ]


def gpu_variable(family: str) -> db.QueryVariable:
    """Devices by UUID, since two servers both have a GPU 0. family: one that every device has."""
    return variable(
        "gpu",
        "GPU",
        f'label_values({family}{{{PLACE},instance=~"$instance"}}, uuid)',
        "By UUID.",
    )


def level_variables(*, shown: bool) -> list[db.CustomVariable]:
    """What is promised. shown: False where no panel compares with it; links carry it all the same.

    They change lines and shares on boards; alerts have their own, which the generator sets.
    """
    return [
        choice(
            "ttft",
            "First token within",
            [f"{bound:g}" for bound in FIRST_TOKEN_SECONDS],
            FIRST_TOKEN,
            "Seconds; the bounds that the histogram has.",
            shown,
        ),
        choice(
            "itl",
            "Next token within",
            [f"{bound:g}" for bound in INTER_TOKEN_SECONDS],
            TOKEN_GAP,
            "Seconds; the bounds that the histogram has.",
            shown,
        ),
        choice(
            "objective",
            "Of 100 in time",
            OBJECTIVES,
            IN_TIME,
            "How many have to come within these times; the rest is the error budget.",
            shown,
        ),
        choice(
            "answered",
            "Of 100 answered",
            OBJECTIVES,
            ANSWERED,
            "How many may neither fail nor be refused for lack of room.",
            shown,
        ),
    ]


def filters() -> db.AdHocVariable:
    """Any other label: Grafana adds what is chosen to every query."""
    return (
        db.AdHocVariable("filters")
        .label("Filters")
        .description("Any label of your targets: rack, zone, team, version.")
        .datasource(SOURCE)
    )


def choice(
    name: str, label: str, values: Iterable[str], default: str, help: str, shown: bool = True
) -> db.CustomVariable:
    """A variable with one of these values."""
    options = [dm.VariableOption(text=v, value=v, selected=v == default) for v in values]
    return (
        db.CustomVariable(name)
        .label(label)
        .description(help)
        .values(",".join(str(option.value) for option in options))
        .options(options)
        .current(dm.VariableOption(text=default, value=default, selected=True))
        .hide(dm.VariableHide.DONT_HIDE if shown else dm.VariableHide.HIDE_VARIABLE)
    )
