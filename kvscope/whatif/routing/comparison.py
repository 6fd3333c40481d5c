"""Compares policies on one workload, and says in words what they come to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kvscope.options.routing import Policy, RoutingOptions
from kvscope.whatif.findings import FLAT, WhatIfError
from kvscope.whatif.routing.policies import placing
from kvscope.whatif.routing.replay import Outcome, replay
from kvscope.whatif.routing.replica import Pace
from kvscope.whatif.routing.workload import Workload
from kvscope_engine.sizing.units import format_bytes, parse_bytes
from kvscope_exporter import words

TIERS = (0.5, 1, 2, 4)
"""Default sizes of a shared tier, as shares of all pools together."""
UNEVEN = 1.5
"""Imbalance that says that a hash of these few tokens does not spread prompts."""
ENOUGH_REQUESTS = 20
"""Requests a replica, below which any placement is uneven."""

OF_ALL = (
    "running requests, which hold their blocks: each request returns them at once",
    "other arrivals: requests come when they came, however long the ones before them wait",
    "batching, and decoding that slows down under load: queueing is that of the stated clock, and "
    "without the tier",
    "a router that knows caches late or in part: kv-aware knows every pool at every moment",
)
OF_TRACES = ("generated tokens: a trace has no ids for their blocks",)
OF_RECORDINGS = ("the time until generated blocks can be found: they are there at once",)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome of each policy, with everything needed to judge it."""

    workload: Workload
    replicas: int
    capacity: int
    bytes_per_block: int | None
    pace: Pace
    prefix_tokens: int
    outcomes: Sequence[Outcome]
    doubts: Sequence[str]

    @property
    def not_modelled(self) -> tuple[str, ...]:
        return (*(OF_TRACES if self.workload.kind == "trace" else OF_RECORDINGS), *OF_ALL)

    @property
    def asked_blocks(self) -> int:
        return self.outcomes[0].steps.asked

    def called(self, policy: Policy) -> str:
        """The policy as the subject of a sentence."""
        return {
            Policy.ROUND_ROBIN: "round robin",
            Policy.LEAST_LOADED: "the least loaded replica",
            Policy.PREFIX_HASH: f"a hash of the first {self.prefix_tokens:,} tokens",
            Policy.KV_AWARE: "a router that knows caches",
            Policy.SESSION: "a hash of the session",
            Policy.RECORDED: "the recorded placement",
        }[policy]

    @property
    def verdict(self) -> str | None:
        """None: nothing was asked for."""
        if not self.asked_blocks:
            return None
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        base, best = self._base, self._best
        found = f"{_capital(self.called(base.policy))} finds {self._share(base.steps.own)}"
        if best.steps.own - base.steps.own <= FLAT * self.asked_blocks:
            yield f"{found} of the blocks asked for" + (
                "; no other policy here finds half a point more." if len(self.outcomes) > 1 else "."
            )
        else:
            yield (
                f"{found} of the blocks asked for; {self.called(best.policy)} finds "
                f"{self._share(best.steps.own)}, with {best.queue_seconds_p99:,.1f} s of queueing "
                f"at p99 instead of {base.queue_seconds_p99:,.1f} s."
            )
            yield self._tier_instead(base, best)
        if base.policy is Policy.RECORDED:
            yield (
                f"The replicas themselves found {self._share(self.workload.recorded_hits)} when "
                "they were recorded."
            )

    def _tier_instead(self, base: Outcome, best: Outcome) -> str:
        wanted = best.steps.own - FLAT * self.asked_blocks
        size = next((blocks for blocks, hits in base.tiers if hits >= wanted), None)
        if size is None:
            return "No shared tier of the sizes here would find as much without another router."
        return f"Without another router that takes a shared tier of {self.size_of(size)}."

    def size_of(self, blocks: int) -> str:
        """A size in words."""
        if self.bytes_per_block is None:
            return f"{blocks:,} blocks"
        return f"{blocks:,} blocks ({blocks * self.bytes_per_block / 1e9:,.4g} GB)"

    @property
    def _base(self) -> Outcome:
        """The policy that others are compared with."""
        by_policy = {outcome.policy: outcome for outcome in self.outcomes}
        for policy in (Policy.RECORDED, Policy.ROUND_ROBIN):
            if policy in by_policy:
                return by_policy[policy]
        return min(self.outcomes, key=lambda outcome: outcome.steps.own)

    @property
    def _best(self) -> Outcome:
        """The one with the shortest queues among those that find about as much as any."""
        most = max(outcome.steps.own for outcome in self.outcomes)
        enough = most - FLAT * self.asked_blocks
        equals = [outcome for outcome in self.outcomes if outcome.steps.own >= enough]
        return min(equals, key=lambda outcome: outcome.queue_seconds_p99)

    def _share(self, blocks: int) -> str:
        return words.share(blocks / self.asked_blocks, 1)


def compare(
    workload: Workload,
    options: RoutingOptions,
    capacities: Sequence[int],
    on_progress: Callable[[int], None] = lambda requests: None,
) -> Comparison:
    """on_progress: gets the requests replayed so far, over all policies.

    Raises WhatIfError for what this workload cannot answer.
    """
    assert options.replicas is not None
    capacity = _capacity(workload, capacities)
    doubts = list(workload.doubts)
    policies = _policies(workload, options, doubts)
    bytes_per_block = _bytes_per_block(workload, options)
    tiers = _tiers(options, options.replicas * capacity, bytes_per_block)
    pace = Pace(prefill=options.prefill_tokens_per_second, decode=options.decode_tokens_per_second)
    prefix_blocks = max(1, options.prefix_tokens // workload.block_tokens)
    outcomes: list[Outcome] = []

    def show_progress(requests: int) -> None:
        on_progress(len(outcomes) * len(workload.requests) + requests)

    for policy in policies:
        outcomes.append(
            replay(
                workload,
                policy,
                placing(policy, prefix_blocks),
                replicas=options.replicas,
                capacity=capacity,
                pace=pace,
                tiers=tiers,
                on_progress=show_progress,
            )
        )
        if len(workload.requests) >= ENOUGH_REQUESTS * options.replicas:
            doubts += _badly_hashed(workload, outcomes[-1], prefix_blocks)
    return Comparison(
        workload=workload,
        replicas=options.replicas,
        capacity=capacity,
        bytes_per_block=bytes_per_block,
        pace=pace,
        prefix_tokens=prefix_blocks * workload.block_tokens,
        outcomes=outcomes,
        doubts=doubts,
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _capacity(workload: Workload, capacities: Sequence[int]) -> int:
    if len(capacities) > 1:
        raise WhatIfError("with --replicas all pools have one size: give --capacity once")
    if capacities:
        return capacities[0]
    if workload.pool_blocks is None:
        why = "a trace has no pool" if workload.kind == "trace" else "the recorded pools differ"
        raise WhatIfError(f"{why}: give the blocks of each replica's, --capacity N")
    return max(1, workload.pool_blocks)


def _policies(workload: Workload, options: RoutingOptions, doubts: list[str]) -> Sequence[Policy]:
    """Those asked for, or all that are possible; adds the ones left out to the doubts."""
    impossible: dict[Policy, str] = {}
    if workload.without_session:
        impossible[Policy.SESSION] = (
            f"{workload.without_session:,} of {len(workload.requests):,} requests name no session "
            "(session_id or chat_id of a trace; recordings have none)"
        )
    if workload.recordings != options.replicas:
        impossible[Policy.RECORDED] = (
            f"{workload.recordings} recordings cannot be replayed as they were on "
            f"{options.replicas} replicas"
            if workload.recordings
            else "a trace does not say where its requests went"
        )
    if not options.policy:
        if Policy.SESSION in impossible and workload.kind == "trace":
            doubts.append(f"session is left out: {impossible[Policy.SESSION]}")
        return [policy for policy in Policy if policy not in impossible]
    wanted = list(dict.fromkeys(options.policy))
    for policy in wanted:
        if policy in impossible:
            raise WhatIfError(f"--policy {policy.value}: {impossible[policy]}")
    return wanted


def _bytes_per_block(workload: Workload, options: RoutingOptions) -> int | None:
    if options.bytes_per_block is None:
        return workload.bytes_per_block
    try:
        return parse_bytes(options.bytes_per_block)
    except ValueError as error:
        raise WhatIfError(f"--bytes-per-block: {error}") from None


def _tiers(options: RoutingOptions, pool_blocks: int, bytes_per_block: int | None) -> list[int]:
    if not options.tier:
        return sorted({max(1, int(share * pool_blocks)) for share in TIERS})
    if bytes_per_block is None:
        raise WhatIfError(
            "--tier: the bytes of a block are not known: give --bytes-per-block BYTES"
        )
    sizes = set()
    for size in options.tier:
        blocks = int(size * 1e9 / bytes_per_block)
        if blocks < 1:
            raise WhatIfError(
                f"--tier {size:g}: a block takes {format_bytes(bytes_per_block)}, more than that"
            )
        sizes.add(blocks)
    return sorted(sizes)


def _badly_hashed(workload: Workload, outcome: Outcome, prefix_blocks: int) -> Iterator[str]:
    if outcome.policy is not Policy.PREFIX_HASH:
        return
    tokens = prefix_blocks * workload.block_tokens
    short = sum(len(request.names) <= prefix_blocks for request in workload.requests)
    if outcome.imbalance is not None and outcome.imbalance >= UNEVEN:
        yield (
            f"prefix-hash gives one replica {outcome.imbalance:.1f} times the mean work: many "
            f"prompts agree in their first {tokens:,} tokens; try a larger --prefix-tokens"
        )
    elif 2 * short > len(workload.requests):
        yield (
            f"over half of the prompts have at most the {tokens:,} tokens that prefix-hash looks "
            "at, so the next turn of a conversation goes elsewhere; try a smaller --prefix-tokens"
        )
