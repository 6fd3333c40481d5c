"""A fleet's cache: which step of the waterfall its misses are lost at; of `kvscope fleet` alone."""

from kvscope_exporter.catalogue.metric import Kind, Labels, Metric
from kvscope_exporter.fetch.error import FETCH_ERROR_KINDS

SIDECAR_ERROR_KINDS = (*FETCH_ERROR_KINDS, "malformed")
STEPS = ("own", "best", "anywhere", "seen", "asked")
"""Steps of the waterfall, none smaller than the one before it."""
OWN_STEPS = ("own", "best", "asked")
REPLICA_STATES = ("counted", "unknown", "incomparable", "doubled")
SPACE: Labels = {"model_name": None, "name_space": None}
"""Replicas whose names can be compared."""
REPLICA: Labels = {"model_name": None, "sidecar": None, "server": None, "engine": None}


def _fleet(
    name: str,
    help: str,
    *,
    kind: Kind = "gauge",
    unit: str,
    labels: Labels | None = None,
    notes: str = "",
) -> Metric:
    return Metric(
        name=f"kvscope_fleet_{name}",
        kind=kind,
        help=help,
        unit=unit,
        group="fleet",
        labels=SPACE if labels is None else labels,
        notes=notes,
        otel_name=f"kvscope.fleet.{name.removesuffix('_total')}",
    )


FLEET = (
    _fleet(
        "prefix_tokens_total",
        "Prompt tokens in full blocks at each step of the fleet's waterfall; asked: all of them.",
        kind="counter",
        unit="tokens",
        labels={**SPACE, "step": STEPS},
        notes="Leading blocks of the first lookup of each request. own: its replica found them. "
        "best: one replica held all of them at that moment. anywhere: each was on some replica. "
        "seen: a request had asked for them before. What lies between own and best was lost by "
        "routing, between best and anywhere by not fetching from peers, between anywhere and "
        "seen by capacity; above seen the content is new. Each request is judged by itself, so a "
        "gap says what another choice could have found, *up to*. While a replica's content is not "
        "known, best and anywhere are lower bounds.",
    ),
    _fleet(
        "tier_hit_tokens_total",
        "Prompt tokens found with a simulated tier of this many blocks shared by all replicas.",
        kind="counter",
        unit="tokens",
        labels={**SPACE, "tier_blocks": None},
        notes="Simulated: the tier is shared by all replicas, holds copies, and every lookup "
        "touches its whole path there.",
    ),
    _fleet(
        "tier_size_blocks",
        "Blocks of each simulated tier: the label as a number, for graphs over it.",
        unit="blocks",
        labels={"tier_blocks": None},
    ),
    _fleet(
        "pool_blocks",
        "Usable blocks of all pools whose content is known.",
        unit="blocks",
    ),
    _fleet("block_tokens", "Tokens of a block.", unit="tokens"),
    _fleet(
        "block_bytes",
        "Bytes of a block, as a tier would have to store it.",
        unit="bytes",
        notes="Absent where a name stands for blocks of several groups of layers.",
    ),
    _fleet(
        "replica_prefix_tokens_total",
        "Prompt tokens of one replica's lookups: asked, found by itself, held by the best replica.",
        kind="counter",
        unit="tokens",
        labels={**REPLICA, "step": OWN_STEPS},
    ),
    _fleet(
        "replicas",
        "Replicas by state; only those counted are part of the waterfall.",
        unit="replicas",
        labels={"state": REPLICA_STATES},
        notes="unknown: the content is not known, as after lost batches. incomparable: the server "
        "does not say what its names depend on. doubled: two sidecars watch the same engine, or "
        "two engines of one sidecar have the same labels. `/api/fleet` has the reason of each.",
    ),
    _fleet(
        "name_spaces",
        "Sets of replicas of one model whose names cannot be compared with each other.",
        unit="name_spaces",
        labels={"model_name": None},
    ),
    _fleet(
        "sidecar_up",
        "Whether a sidecar has answered within the last ten seconds.",
        unit="",
        labels={"sidecar": None},
    ),
    _fleet(
        "sidecar_errors_total",
        "Failed attempts to read a sidecar, by kind.",
        kind="counter",
        unit="errors",
        labels={"sidecar": None, "kind": SIDECAR_ERROR_KINDS},
    ),
    _fleet(
        "contradictions_total",
        "Answers of a sidecar that cannot be; its replica is left out for a minute.",
        kind="counter",
        unit="answers",
        labels={"sidecar": None},
    ),
    _fleet(
        "fold_seconds_total",
        "Time spent on folding the answers of sidecars.",
        kind="counter",
        unit="seconds",
        labels={},
    ),
)
