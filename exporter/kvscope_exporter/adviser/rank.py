"""Selection and order of the proposals: at most five, one for each option."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.adviser.block_size import smaller_blocks
from kvscope_exporter.adviser.conservativeness import more_conservative
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.larger_pool import larger_pool
from kvscope_exporter.adviser.offloading import host_tier
from kvscope_exporter.adviser.proposal import DeclinedProposal, Option, Proposal, Verdict
from kvscope_exporter.adviser.replica import another_replica
from kvscope_exporter.adviser.retention import denser_retention
from kvscope_exporter.adviser.room_for_steps import room_for_steps
from kvscope_exporter.adviser.sequences import fewer_sequences, more_sequences
from kvscope_exporter.adviser.smaller_pool import smaller_pool
from kvscope_exporter.adviser.smaller_steps import smaller_steps
from kvscope_exporter.adviser.step_budget import larger_budget, smaller_budget
from kvscope_exporter.adviser.swapping import swap_space
from kvscope_exporter.adviser.watermark import watermark

MAX_PROPOSALS = 5

KINDS: tuple[Callable[[Facts], Verdict], ...] = (
    smaller_steps,
    room_for_steps,
    larger_pool,
    denser_retention,
    fewer_sequences,
    watermark,
    more_conservative,
    swap_space,
    host_tier,
    another_replica,
    more_sequences,
    larger_budget,
    smaller_budget,
    smaller_blocks,
    smaller_pool,
)
"""Breaks ties: proposals that end failures first, those that only free memory last."""
_ELSEWHERE: Mapping[Callable[[Facts], Verdict], frozenset[ServerKind]] = {
    watermark: frozenset({"sglang"}),
    denser_retention: frozenset({"kvscope", "sglang"}),
    swap_space: frozenset({"sglang"}),
    more_conservative: frozenset({"kvscope", "vllm"}),
}
"""Kinds that are other servers' levers: nothing is said of them."""
_OF_OTHER_SIZES = {
    larger_pool: "a larger pool",
    smaller_pool: "a smaller pool",
    another_replica: "another replica",
}
"""Kinds that depend on the hits of other sizes."""
_OF_PLAIN_POOLS = {
    fewer_sequences: "fewer sequences",
    more_sequences: "more sequences",
    smaller_blocks: "smaller blocks",
    host_tier: "offloading",
}
"""Kinds that depend on the blocks that a sequence needs, or on what a tier would hold of them."""
_SEVERAL_GROUPS = "not known for pools of several groups (sliding windows, states)"


@dataclass(frozen=True, slots=True)
class Advice:
    proposals: Sequence[Proposal]
    """The best first."""
    declined: Sequence[DeclinedProposal]
    """The kinds that are not proposed, each with its reason."""
    unknown: str | None = None
    """Advice that is impossible for this engine, whatever its load; one sentence."""


def advise(facts: Facts) -> Advice:
    """Proposals that end errors first; then by tokens saved."""
    made: list[Proposal] = []
    declined: list[DeclinedProposal] = []
    impossible = {} if facts.is_plain else _OF_PLAIN_POOLS
    if not facts.is_plain and facts.hits_are_unknown:
        impossible = _OF_OTHER_SIZES | _OF_PLAIN_POOLS
    for kind in KINDS:
        if facts.server in _ELSEWHERE.get(kind, ()):
            continue
        if kind in impossible:
            verdict: Verdict = DeclinedProposal(
                f"{impossible[kind]}: {_SEVERAL_GROUPS}", "not known"
            )
        else:
            verdict = kind(facts)
        if isinstance(verdict, DeclinedProposal):
            declined.append(verdict)
        else:
            made.append(verdict)
    made.sort(key=_rank)  # stable
    best: dict[Option, Proposal] = {}
    for proposal in made:
        best.setdefault(proposal.option, proposal)
    unknown = None
    if impossible:
        unknown = f"{', '.join(impossible.values())}: {_SEVERAL_GROUPS}"
    return Advice(list(best.values())[:MAX_PROPOSALS], declined, unknown)


def _rank(proposal: Proposal) -> tuple[int, float]:
    gain = proposal.gain
    ends_errors = gain.errors_per_second_to is not None
    is_device = proposal.option == "replicas"  # a flag before a machine
    return (0 if ends_errors else 2 if is_device else 1, -gain.saved_tokens_per_second)
