"""Fleet cache: can these figures be trusted? Replicas that count, sidecars that answer."""

from dashboards.boards.fleet_cache.figures import NO_FLEET, PROCESS, SPACE
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, RATIO, SECONDS, Q, graph, numbers
from dashboards.kit.queries import over_range, rate, series, total, worst
from dashboards.kit.tables import Column, rows

_REPLICAS = "kvscope_fleet_replicas"
_ANSWERS = {0: ("no", "red"), 1: ("yes", "green")}


def row() -> Row:
    errors = "kvscope_fleet_sidecar_errors_total"
    contradictions = "kvscope_fleet_contradictions_total"
    return Row(
        500,
        "Can these figures be trusted?",
        [
            numbers(
                501,
                "Left out? Must be 0",
                "unknown: replicas whose content is not known, after a start or lost batches; "
                "until it is, best and anywhere are lower bounds. incomparable: their server does "
                "not say what names of blocks depend on. doubled: two sidecars watch one engine. "
                "`/api/fleet` has the reason of each. sidecars: those that do not answer.",
                COUNT,
                *(
                    Q(total(series(_REPLICAS, PROCESS, state=state)), state)
                    for state in ("unknown", "incomparable", "doubled")
                ),
                Q(f"sum(1 - {series('kvscope_fleet_sidecar_up', PROCESS)})", "sidecars"),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=5,
                height=8,
                when_absent="no fleet",
            ),
            graph(
                502,
                "Replicas by state",
                "Only those counted are part of the waterfall. A gap in them: a roll-out, or the "
                "fleet process was restarted; the sums go on.",
                COUNT,
                Q(total(series(_REPLICAS, PROCESS), "state"), "{{state}}"),
                stacked=True,
                colours=limits.REPLICA_COLOURS,
                span=7,
                listed=True,
                when_absent=NO_FLEET,
            ),
            rows(
                503,
                "Sidecars",
                "Whether each answers, how long ago it did, and in this time range: attempts that "
                "failed, and answers that cannot be. 'no': is it running, is its port open, does "
                "it want another key? The log of kvscope fleet says what it answered.",
                Q(worst(series("kvscope_fleet_sidecar_up", PROCESS), "sidecar"), "up"),
                Q(
                    "min by (sidecar) ("
                    + series("kvscope_fleet_sidecar_last_answer_age_seconds", PROCESS)
                    + ")",
                    "age",
                ),
                Q(f"round({total(over_range(errors, PROCESS), 'sidecar')})", "errors"),
                Q(
                    f"round({total(over_range(contradictions, PROCESS), 'sidecar')})",
                    "contradictions",
                ),
                columns={
                    "sidecar": Column("Sidecar", least=120),
                    "up": Column("Answers", meanings=_ANSWERS, width=80),
                    "age": Column("Last answer", SECONDS, width=100, decimals=0),
                    "errors": Column("Failed", COUNT, width=75),
                    "contradictions": Column("Cannot be", COUNT, width=90),
                },
                span=12,
                when_absent=NO_FLEET,
                least_first=("Answers",),
            ),
            rows(
                504,
                "Sets of names, by model",
                "Replicas of one model whose names of blocks cannot be compared are separate "
                "sets. More than 1: the start page of kvscope fleet says what differs, the block "
                "size, the hash algorithm or PYTHONHASHSEED; make them equal.",
                Q(
                    worst(series("kvscope_fleet_name_spaces", SPACE), "model_name"),
                    "sets",
                ),
                columns={
                    "model_name": Column("Model"),
                    "sets": Column("Sets", COUNT, steps=((None, "green"), (1.5, "orange"))),
                },
                span=8,
                when_absent=NO_FLEET,
                worst_first=("Sets",),
            ),
            graph(
                505,
                "Failed attempts to read a sidecar",
                "By kind: connection and timeout, it is not there; status, it wants a key, or "
                "a different key; malformed and too_large, it is of another version.",
                PER_SECOND,
                Q(total(rate(errors, PROCESS), "kind"), "{{kind}}"),
                span=8,
                listed=True,
                when_absent=NO_FLEET,
            ),
            graph(
                506,
                "What following costs",
                "Share of one CPU core that folding the sidecars' answers takes. Towards 1: the "
                "figures lag; follow fewer replicas with each process, or fold a sample of the "
                "conversations. sampled: its share, where not all are folded.",
                RATIO,
                Q(total(rate("kvscope_fleet_fold_seconds_total", PROCESS)), "folding"),
                Q(worst(series("kvscope_fleet_sample_ratio", PROCESS)) + " < 1", "sampled"),
                steps=limits.FLEET_FULL,
                span=8,
                calcs=("lastNotNull", "max"),
                when_absent=NO_FLEET,
            ),
        ],
    )
