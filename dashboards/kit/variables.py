"""Variables of all dashboards: the selection, and the service levels that curves refer to."""

from collections.abc import Iterable, Mapping
from typing import Literal

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.models import dashboard as dm

from dashboards.kit.links import SOURCE
from dashboards.kit.queries import PLACE
from kvscope_exporter.state.buckets import FIRST_TOKEN_SECONDS, INTER_TOKEN_SECONDS
from kvscope_monitoring.bounds import at_or_below
from kvscope_monitoring.objectives import ERROR_OBJECTIVE, ITL_SECONDS, TTFT_OBJECTIVE, TTFT_SECONDS

EVERY_ENGINE = "kvscope_source_up"
"""A family that every engine has on its page from the start, even while it loads its model."""

Levels = Literal["none", "first token", "all"]

OBJECTIVES = ("95", "99", "99.5", "99.9", "99.95")
"""Percent of the requests that keep a promise."""
ANSWERED, IN_TIME = f"{100 * ERROR_OBJECTIVE:g}", f"{100 * TTFT_OBJECTIVE:g}"
"""Default shares of the requests: answered ones, and timely ones."""
FIRST_TOKEN, TOKEN_GAP = f"{TTFT_SECONDS:g}", f"{ITL_SECONDS:g}"
"""Seconds that count as in time by default; each is a bound of its histogram."""


def variable(
    name: str, label: str, query: str, help: str, *, every: str = ".+", shown: bool = True
) -> db.QueryVariable:
    """A variable with several values or all; its values are those in the time range.

    every: the regular expression that stands for all of them. shown: a hidden one is set by links,
    or by hand in the address.
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
        .hide(_hidden(shown))
        .current(dm.VariableOption(text="All", value="$__all", selected=True))
    )


def one_of(name: str, label: str, query: str, help: str) -> db.QueryVariable:
    """A variable with exactly one of the values in the time range: the first, until one is
    chosen."""
    return (
        db.QueryVariable(name)
        .label(label)
        .description(help)
        .datasource(SOURCE)
        .query(query)
        .refresh(dm.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dm.VariableSort.ALPHABETICAL_ASC)
        .multi(False)
        .include_all(False)
    )


def place_variables(family: str) -> list[db.QueryVariable]:
    """Cluster, namespace and pod, each limited by those before. family: one of every engine.

    "All" includes series without the label, which only Kubernetes has.
    """
    labels = {
        "cluster": "External label of a Prometheus, if several report to one place.",
        "namespace": "Kubernetes only.",
        "pod": "Kubernetes only.",
    }
    found, chosen = [], ""
    for label, help in labels.items():
        among = f"{family}{{{chosen}}}" if chosen else family
        query = f"label_values({among}, {label})"
        shown = label != "pod"  # is in the server's address, and in the filters
        found.append(variable(label, label.capitalize(), query, help, every=".*", shown=shown))
        chosen = ",".join(part for part in (chosen, f'{label}=~"${label}"') if part)
    return found


def engine_variables(family: str, *, engine: bool = True) -> list[db.QueryVariable]:
    """Model, server and engine, each limited by those before. family: one that every engine has.

    engine: whether to show the last, which most servers have only one of.
    """
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
            "Number of the engine in its server; 0 where there is only one. All: also what a "
            "server with several counts for them together.",
            every=".*",
            shown=engine,
        ),
    ]


def gpu_variable(family: str, *, shown: bool) -> db.QueryVariable:
    """Devices by UUID, since two servers both have a GPU 0. family: one that every device has."""
    return variable(
        "gpu",
        "GPU",
        f'label_values({family}{{{PLACE},instance=~"$instance"}}, uuid)',
        "By UUID.",
        shown=shown,
    )


def level_variables(levels: Levels) -> list[db.CustomVariable]:
    """The promises. levels: most dashboards show only that of the first token, Service levels all;
    links carry the others.

    They change lines, tiles and shares on dashboards; alerts have their own, set by the generator.
    """
    shown = levels == "all"
    return [
        choice(
            "ttft",
            "TTFT target",
            _limits(FIRST_TOKEN_SECONDS),
            FIRST_TOKEN,
            "Seconds; judged by the bound at or next below it that a server's histogram has. The "
            "share of requests that must keep it, and the other promises, are chosen on Service "
            "levels.",
            levels != "none",
        ),
        choice(
            "itl",
            "ITL target",
            _limits(INTER_TOKEN_SECONDS),
            TOKEN_GAP,
            "Seconds; judged by the bound at or next below it that a server's histogram has.",
            shown,
        ),
        choice(
            "objective",
            "In time, of 100",
            OBJECTIVES,
            IN_TIME,
            "Share that must come within these times; the rest is the error budget.",
            shown,
        ),
        choice(
            "answered",
            "Answered, of 100",
            OBJECTIVES,
            ANSWERED,
            "Share that must neither fail nor be refused for lack of room.",
            shown,
        ),
    ]


def filters() -> db.AdHocVariable:
    """Any other label: Grafana adds the chosen filters to every query."""
    return (
        db.AdHocVariable("filters")
        .label("Filters")
        .description("Any label of your targets: rack, zone, team, version.")
        .datasource(SOURCE)
    )


def choice(
    name: str,
    label: str,
    values: Mapping[str, str] | Iterable[str],
    default: str,
    help: str,
    shown: bool = True,
) -> db.CustomVariable:
    """A variable with one of these values; a mapping gives them by the texts that are shown."""
    pairs = values if isinstance(values, Mapping) else {value: value for value in values}
    options = [
        dm.VariableOption(text=text, value=value, selected=text == default)
        for text, value in pairs.items()
    ]
    return (
        db.CustomVariable(name)
        .label(label)
        .description(help)
        .values(",".join(v if v == text else f"{text} : {v}" for text, v in pairs.items()))
        .options(options)
        .current(dm.VariableOption(text=default, value=pairs[default], selected=True))
        .hide(_hidden(shown))
    )


def _limits(known: Iterable[float]) -> Mapping[str, str]:
    """By their numbers, the bounds by which they are judged."""
    return {f"{limit:g}": at_or_below(limit) for limit in known}


def _hidden(shown: bool) -> dm.VariableHide:
    return dm.VariableHide.DONT_HIDE if shown else dm.VariableHide.HIDE_VARIABLE
