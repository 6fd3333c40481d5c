"""A comparison of policies as tables for people, and as a document."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kvscope.whatif.report import frame
from kvscope.whatif.routing.comparison import Comparison
from kvscope.whatif.routing.replay import Outcome
from kvscope_exporter import words


def document(files: Sequence[Path], found: Comparison) -> dict[str, Any]:
    """The whole comparison; unknown values are null."""
    workload = found.workload
    return {
        "files": [str(file) for file in files],
        "kind": workload.kind,
        "requests": len(workload.requests),
        "replicas": found.replicas,
        "capacity_blocks": found.capacity,
        "block_tokens": workload.block_tokens,
        "block_bytes": found.bytes_per_block,
        "prefix_tokens": found.prefix_tokens,
        "prefill_tokens_per_second": found.pace.prefill,
        "decode_tokens_per_second": found.pace.decode,
        "recorded_hit_blocks": workload.recorded_hits if workload.recordings else None,
        "policies": [_policy(outcome, found.bytes_per_block) for outcome in found.outcomes],
        "verdict": found.verdict,
        "doubts": list(found.doubts),
        "not_modelled": list(found.not_modelled),
    }


def _policy(outcome: Outcome, bytes_per_block: int | None) -> dict[str, Any]:
    return {
        "policy": outcome.policy.value,
        "own_blocks": outcome.steps.own,
        "best_blocks": outcome.steps.best,
        "anywhere_blocks": outcome.steps.anywhere,
        "seen_blocks": outcome.steps.seen,
        "asked_blocks": outcome.steps.asked,
        "saved_tokens": outcome.saved_tokens,
        "imbalance": outcome.imbalance,
        "duplicates": outcome.duplicates,
        "queue_seconds_p50": outcome.queue_seconds_p50,
        "queue_seconds_p99": outcome.queue_seconds_p99,
        "tiers": [
            {
                "blocks": blocks,
                "bytes": None if bytes_per_block is None else blocks * bytes_per_block,
                "hit_blocks": hits,
            }
            for blocks, hits in outcome.tiers
        ],
    }


def show(console: Console, files: Sequence[Path], found: Comparison) -> None:
    """Show the tables, between their subject and their limitations."""
    frame(
        *(console, _title(files, found), _tables(found)),
        *(found.verdict, found.doubts, found.not_modelled),
    )


def _title(files: Sequence[Path], found: Comparison) -> str:
    workload, pace = found.workload, found.pace
    replicas = "1 replica" if found.replicas == 1 else f"{found.replicas:,} replicas"
    return (
        f"{', '.join(file.name for file in files)}: {len(workload.requests):,} requests, "
        f"{found.asked_blocks:,} blocks of {workload.block_tokens} tokens asked for\n"
        f"{replicas} of {found.size_of(found.capacity)}, each computing {pace.prefill:,.12g} "
        f"prompt tokens a second, and {pace.decode:,.12g} output tokens a second of each request"
    )


def _tables(found: Comparison) -> Iterator[Table]:
    asked = found.asked_blocks
    steps = _table("Blocks found", "own", "best replica", "anywhere", "seen", "duplicates")
    tiers = _table(
        "With a shared tier behind the pools",
        *(found.size_of(blocks) for blocks, _ in found.outcomes[0].tiers),
    )
    work = _table("Work", "tokens saved", "imbalance", "queueing p50", "queueing p99")
    for outcome in found.outcomes:
        name = outcome.policy.value
        steps.add_row(
            name,
            *(_share(blocks, asked) for blocks in outcome.steps[:4]),
            "unknown" if outcome.duplicates is None else f"{100 * outcome.duplicates:.1f} %",
        )
        tiers.add_row(name, *(_share(hits, asked) for _, hits in outcome.tiers))
        work.add_row(
            name,
            f"{outcome.saved_tokens:,}",
            "unknown" if outcome.imbalance is None else f"{outcome.imbalance:.2f}",
            f"{outcome.queue_seconds_p50:,.2f} s",
            f"{outcome.queue_seconds_p99:,.2f} s",
        )
    yield from (steps, tiers, work)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="")
    table.add_column("policy")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _share(blocks: int, asked: int) -> str:
    return words.share(blocks / asked if asked else None, 1)
