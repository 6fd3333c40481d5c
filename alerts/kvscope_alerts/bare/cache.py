"""Alerts about the KV cache: too small for its load, or no longer hit."""

from kvscope_alerts.bare.limits import PREEMPTED_MIN, PREEMPTED_SHARE
from kvscope_alerts.bare.pack import Pack
from kvscope_alerts.bare.server import summed
from kvscope_alerts.rule import Alert, Group, Record
from kvscope_alerts.thresholds import HIT_RATIO_LEFT, HIT_RATIO_WORTH, PREFIX_TOKENS_PER_SECOND
from kvscope_monitoring.thresholds import POOL_SATURATED


def cache_groups(pack: Pack) -> list[Group]:
    word = pack.server.word
    records = [
        Record(record=_hit_ratio(pack, window), expr=_ratio(pack, window))
        for window in ("10m", "6h")
    ]
    return [
        Group(name=f"{word}-prefix-cache.rules", rules=[*records]),
        Group(name=f"{word}-kv-cache", rules=[_full(pack), _preempts(pack), _collapsed(pack)]),
    ]


def _full(pack: Pack) -> Alert:
    server = pack.server
    usage = server.each(pack.over("avg_over_time", server.usage, "5m"))
    waiting = server.each(pack.over("min_over_time", server.waiting, "5m"))
    return pack.alert(
        "KvCacheFull",
        severity="warning",
        topic="kv-pool",
        expr=f"{usage} > {POOL_SATURATED:.2f}\nand {waiting} > 0",
        wait="10m",
        keep="5m",
        summary=f"The KV cache of a {server.title} server is too small for its load.",
        labels={"sign": "full"},
        description="Running requests hold {{ $value | humanizePercentage }} of the KV cache of "
        f"{pack.subject}, and others have been waiting for a quarter of an hour.",
    )


def _preempts(pack: Pack) -> Alert:
    server = pack.server
    preempted = server.whole(pack.over("increase", server.preempted, "10m"))
    ended = server.per_server(server.ended_by, pack.over("increase", server.ended, "10m"))
    name = server.preemptions
    return pack.alert(
        "KvCacheFull",
        severity="warning",
        topic="kv-pool",
        expr=f"{preempted} > {PREEMPTED_SHARE} * {ended}\nand {preempted} >= {PREEMPTED_MIN}",
        wait="10m",
        keep="5m",
        summary=f"The KV cache of a {server.title} server is too small for its load.",
        labels={"sign": "preempts"},
        description=f'About {{{{ $value | printf "%.0f" }}}} {name} on {{{{ $labels.instance }}}} '
        f"({{{{ $labels.model_name }}}}) in ten minutes, more than one for ten requests that "
        "ended: each is computed a second time.",
        by=("instance", "model_name"),
    )


def _hit_ratio(pack: Pack, window: str) -> str:
    return f"engine:{pack.server.word}_prefix_hit:ratio_rate{window}"


def _ratio(pack: Pack, window: str) -> str:
    server = pack.server
    hits = summed(server.hits_by, pack.over("rate", server.hits, window))
    queries = summed(server.queries_by, pack.over("rate", server.queries, window))
    return f"{hits}\n/ ({queries} > 0)"


def _collapsed(pack: Pack) -> Alert:
    """Silent for half an hour after a restart: an empty cache fills by itself."""
    server = pack.server
    now = _hit_ratio(pack, "10m")
    before = f"({_hit_ratio(pack, '6h')} offset 30m)"
    queried = summed(server.queries_by, pack.over("rate", server.queries, "10m"))
    restarted = summed(server.queries_by, pack.over("resets", server.queries, "30m"))
    return pack.alert(
        "PrefixHitRateCollapsed",
        severity="warning",
        topic="prefix-cache",
        expr=f"{now} < {HIT_RATIO_LEFT} * {before}\nand {before} > {HIT_RATIO_WORTH}\n"
        f"and {queried} > {PREFIX_TOKENS_PER_SECOND}\nunless {restarted} > 0",
        wait="5m",
        keep="5m",
        summary=f"The prefix cache of a {server.title} engine hits less than half as often as it "
        "used to.",
        description=f"{pack.subject} found {{{{ $value | humanizePercentage }}}} of the prompt "
        "tokens in its prefix cache in the last ten minutes, less than half of its ratio over the "
        "six hours before.",
    )
