"""Alerts about engines that stall, sleep, fail requests or are slower than their peers."""

from kvscope_alerts.bare.limits import (
    FAILING_MIN,
    SLOW_FACTOR,
    SLOW_MIN_SECONDS,
    SLOW_MIN_SERVERS,
)
from kvscope_alerts.bare.pack import Pack
from kvscope_alerts.bare.server import VLLM, summed
from kvscope_alerts.rule import Alert, Group, Record
from kvscope_monitoring.formulas import share
from kvscope_monitoring.objectives import FAILING_SHARE

SHARE = "{{ $value | humanizePercentage }}"


def engine_groups(pack: Pack) -> list[Group]:
    alerts = [_stalled(pack), _stuck(pack), _fails(pack)]
    if pack.server is VLLM:  # SGLang does not report it
        alerts.append(_fails_in_engine(pack))
    word = pack.server.word
    return [
        Group(name=f"{word}-engine", rules=[*alerts]),
        Group(name=f"{word}-outliers.rules", rules=[*_means(pack)]),
        Group(name=f"{word}-outliers", rules=[_slow(pack, sign) for sign in SLOW]),
    ]


def _stalled(pack: Pack) -> Alert:
    """The gauges of a hung engine keep their last values."""
    server = pack.server
    moved = " + ".join(
        server.each(summed(server.tokens_by, pack.over("rate", name, "2m")))
        for name in server.tokens
    )
    busy = " or ".join(
        server.each(f"{pack.over('min_over_time', gauge, '2m')} > 0")
        for gauge in (server.running, server.waiting)
    )
    return pack.alert(
        "EngineStalled",
        severity="critical",
        topic="engine",
        expr=f"{moved} == 0\nand ({busy})",
        wait="3m",
        summary=f"A {server.title} engine has requests and computes nothing.",
        description=f"{pack.subject} has had requests for five minutes and has neither read a "
        "prompt nor written a token: its requests hang. /health may still say 200.",
    )


def _stuck(pack: Pack) -> Alert:
    server = pack.server
    waiting = server.each(pack.over("min_over_time", server.waiting, "5m"))
    first = pack.over("rate", f"{server.first_token}_count", "5m")
    begun = summed(server.first_token_by, first)
    rate = pack.over("rate", server.written, "5m", *server.written_only)
    written = server.each(summed(server.tokens_by, rate))
    return pack.alert(
        "QueueStuck",
        severity="critical",
        topic="engine",
        expr=f"{waiting} > 0\nunless {server.same}{begun} > 0\nand {written} > 0",
        wait="5m",
        summary=f"The queue of a {server.title} engine does not move.",
        description='{{ $value | printf "%.0f" }} or more requests have waited in the queue of '
        f"{pack.subject} for ten minutes, and none has had its first token, though running ones "
        "go on.",
    )


def _fails(pack: Pack) -> Alert:
    """From the HTTP server: it also sees requests that never reach an engine, or find it dead."""
    server = pack.server
    without = f"sum without ({', '.join(server.http_by)})"
    post = 'method="POST"'
    bad = pack.over("rate", server.http, "10m", post, server.http_failed)
    every = pack.over("rate", server.http, "10m", post)
    count = pack.over("increase", server.http, "10m", post, server.http_failed)
    return pack.alert(
        "ServerFails",
        severity="critical",
        topic="errors",
        expr=f"{share(f'{without} ({bad})', f'{without} ({every})')}\n> {FAILING_SHARE:.2f}\n"
        f"and {without} ({count}) >= {FAILING_MIN}",
        wait="2m",
        summary=f"A {server.title} server fails requests.",
        description="{{ $labels.instance }} answered "
        f"{SHARE} of the requests of the last ten minutes with a status of 500 or above.",
        by=("instance",),
        labels={"sign": "http"},
    )


def _fails_in_engine(pack: Pack) -> Alert:
    """From the engine: a reply that was being streamed has status 200."""
    server = pack.server
    error, ends = 'finished_reason="error"', 'finished_reason!="abort"'
    bad = summed(server.ended_by, pack.over("rate", server.ended, "10m", error))
    every = summed(server.ended_by, pack.over("rate", server.ended, "10m", ends))
    count = summed(server.ended_by, pack.over("increase", server.ended, "10m", error))
    return pack.alert(
        "ServerFails",
        severity="critical",
        topic="errors",
        expr=f"{share(bad, every)}\n> {FAILING_SHARE:.2f}\nand {count} >= {FAILING_MIN}",
        wait="2m",
        summary=f"A {server.title} server fails requests.",
        description=f"{SHARE} of the requests that {pack.subject} ended in the last ten minutes "
        "ended with an error; those that clients gave up do not count.",
        labels={"sign": "engine"},
    )


SLOW = {"first-token": "first token", "inter-token": "next token"}


def _mean(pack: Pack, sign: str) -> str:
    return f"server:{pack.server.word}_{sign.replace('-', '_')}_seconds:mean10m"


def _means(pack: Pack) -> list[Record]:
    """Means, because buckets are too coarse to compare one server's quantile with another's."""
    server = pack.server
    families = {"first-token": server.first_token, "inter-token": server.gap}
    records = []
    for sign, family in families.items():
        total, count = (
            server.per_server(server.first_token_by, pack.over("rate", f"{family}_{part}", "10m"))
            for part in ("sum", "count")
        )
        records.append(Record(record=_mean(pack, sign), expr=f"{total}\n/ ({count} > 0)"))
    return records


def _slow(pack: Pack, sign: str) -> Alert:
    mean, by = _mean(pack, sign), ", ".join(pack.settings.by)
    return pack.alert(
        "ServerSlow",
        severity="warning",
        topic="outlier",
        expr=f"{mean} > {SLOW_MIN_SECONDS[sign]}\n"
        f"and {mean} > on ({by}) group_left () {SLOW_FACTOR[sign]} * quantile by ({by}) (0.5, "
        f"{mean})\nand on ({by}) count by ({by}) ({mean}) >= {SLOW_MIN_SERVERS}",
        wait="15m",
        summary=f"A {pack.server.title} server is much slower than others of the same model.",
        description="{{ $labels.instance }} takes {{ $value | humanizeDuration }} to the "
        f"{SLOW[sign]} on average, more than {SLOW_FACTOR[sign]:g} times the median of the servers "
        "of {{ $labels.model_name }}.",
        by=("instance", "model_name"),
        labels={"sign": sign},
    )
