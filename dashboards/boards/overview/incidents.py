"""Overview: the first clause of `kvscope why`, of each engine with trouble."""

from dashboards.kit.links import KV_POOL, WHY_OF_ROW, to_engine_of_row
from dashboards.kit.panels import SECONDS, Panel, Q
from dashboards.kit.queries import BY_ENGINE, series, worst
from dashboards.kit.tables import Column, rows
from kvscope_exporter.catalogue.incident import PHRASES


def table() -> Panel:
    ago = worst(series("kvscope_incident_age_seconds"), f"{BY_ENGINE}, cause")
    return rows(
        110,
        "What started it?",
        "The cause of the trouble that kvscope sees, by engine, the earliest first: what left its "
        "usual level, did harm, and followed from nothing else. Click a server for the whole "
        "sentence: what followed, what it cost, what to do (those of a sidecar have no address: "
        "kvscope why SIDECAR --target SERVER).",
        Q(ago, "ago"),
        columns={
            "ago": Column("Ago", SECONDS, width=75),
            "cause": Column(
                "Cause", words={str(cause): words for cause, words in PHRASES.items()}, least=150
            ),
            "model_name": Column("Model", link=to_engine_of_row("KV pool", KV_POOL), least=80),
            "instance": Column("Server", link=WHY_OF_ROW, least=110),
            "engine": Column("Engine", width=60),
        },
        span=12,
        height=7,
        when_absent="Nothing is wrong that kvscope sees.",
        worst_first=("Ago",),
    )
