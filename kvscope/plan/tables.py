"""A plan on a terminal: five tables, every figure in binary units."""

from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from kvscope.plan.groups import Page
from kvscope.plan.plan import Budget, Plan
from kvscope.plan.report import PREFILLS, batches, contexts, grid, reservations
from kvscope_engine.sizing import format_bytes

UNKNOWN = "unknown"
_NO_FIT = "✗"

Titled = tuple[str, Table]


def tables(plan: Plan) -> Iterator[Titled]:
    """Titles and tables in reading order: sizes, their share of the GPU, what fits."""
    yield _sizes(plan)
    yield _division(plan)
    if plan.pool_bytes() is not None:
        yield _capacity(plan)
    yield _grid(plan)
    if reservations(plan):
        yield _paging(plan)


def _sizes(plan: Plan) -> Titled:
    settings = plan.settings
    length, many = settings.max_model_len, settings.concurrency
    gpus = " on each GPU" if settings.parallel.gpus > 1 else ""
    table = _table(f"KV cache{gpus}", settings.kv_dtype)
    per_sequence = plan.sequence_bytes(length)
    if plan.bytes_per_token:
        table.add_row("one token more", format_bytes(plan.bytes_per_token))
    for page, number in Counter(group.page for group in plan.groups).items():
        table.add_row(_group(page, number), format_bytes(plan.bytes_per_block))
    if plan.state_bytes:
        table.add_row("state of one sequence, any length", format_bytes(plan.state_bytes))
    table.add_row(f"one sequence of {length:,} tokens", format_bytes(per_sequence))
    own = -(-many // settings.parallel.data)
    table.add_row(f"{own:,} sequences of {length:,} tokens", format_bytes(own * per_sequence))
    if plan.memory.tier:
        held = f"{format_bytes(plan.memory.tier)}: {plan.tier_sequences:,.2f} sequences"
        table.add_row("host tier of each replica", held)
    return f"{plan.shape.name}: {plan.shape.attention}", table


def _group(page: Page, number: int) -> str:
    """A row for the blocks of alike groups: `one block of 16 tokens`, `… of a state (3 groups)`."""
    groups = f" ({number} groups)" if number > 1 else ""
    if page.kind == "state":
        return f"one block of a state{groups}"
    window = "" if page.window is None else f", window {page.window:,}"
    return f"one block of {page.block_size:,} tokens{window}{groups}"


def _division(plan: Plan) -> Titled:
    """Weights, activations and KV, with both ways to prefill."""
    settings, weights = plan.settings, plan.shape.counted or plan.shape.weights
    chunk, whole = settings.max_num_batched_tokens, settings.max_model_len
    gpus = settings.parallel.gpus
    title = "Where the memory goes" + (f" on one of the {gpus} GPUs" if gpus > 1 else "")
    table = _table(
        "",
        f"chunked prefill ({chunk:,} tokens)",
        f"whole prompts ({max(chunk, whole):,} tokens)",
    )
    budgets = [plan.budget(prefill) for prefill in PREFILLS]
    held = [b.weights if b else plan.weight_bytes for b in budgets]
    count = ""
    if weights is not None:
        count = f" ({weights.total / 1e9:,.2f}e9, {settings.storage.text})"
        if weights.active < weights.total and not weights.given:
            count = f"{count[:-1]}, {weights.active / 1e9:,.2f}e9 for a token)"
    table.add_row(f"weights{count}", *[_or_unknown(amount) for amount in held])
    how = "estimated" if settings.activations is None else "given"
    table.add_row(f"activations, {how}", *[_or_unknown(plan.activation_bytes(p)) for p in PREFILLS])
    chunked, at_once = budgets
    if chunked is None or at_once is None:
        return title, table
    both = (chunked, at_once)
    if chunked.adapters:
        table.add_row("LoRA adapters", *[format_bytes(b.adapters) for b in both])
    table.add_row("other (context, libraries)", *[format_bytes(b.other) for b in both])
    table.add_row("KV pool", *[_pool(b) for b in both])
    table.add_row("outside the budget", *[format_bytes(b.outside) for b in both])
    table.add_row("total of the GPU", *[format_bytes(b.total) for b in both])
    share = f"budget ({plan.memory.utilization:g} of the total)"
    table.add_row(share, *[format_bytes(b.requested) for b in both])
    return title, table


def _capacity(plan: Plan) -> Titled:
    length = plan.settings.max_model_len
    table = _table("", "chunked prefill", "whole prompts")
    pools = [plan.num_blocks(prefill) or 0 for prefill in PREFILLS]
    each = plan.blocks(length)
    table.add_row("blocks", *[f"{blocks:,}" for blocks in pools])
    table.add_row(
        f"tokens, in sequences of {length:,}", *[f"{b * length // each:,}" for b in pools]
    )
    table.add_row(
        f"sequences of {length:,} tokens",
        *[f"{plan.concurrent(length, prefill) or 0:,.2f}" for prefill in PREFILLS],
    )
    replicas = plan.settings.parallel.data
    return "What the pool holds" + (f", {replicas} replicas" if replicas > 1 else ""), table


def _grid(plan: Plan) -> Titled:
    known = plan.pool_bytes() is not None
    title = "KV of sequences at once" + (f"; {_NO_FIT} does not fit" if known else "")
    table = _table("tokens each", *[f"{batch:,}" for batch in batches(plan)])
    cells = iter(grid(plan))
    for context in contexts(plan):
        row = []
        for _ in batches(plan):
            cell = next(cells)
            text = format_bytes(cell.nbytes)
            row.append(f"[red]{text} {_NO_FIT}[/red]" if cell.fits is False else text)
        table.add_row(f"{context:,}", *row)
    return title, table


def _paging(plan: Plan) -> Titled:
    length = plan.settings.max_model_len
    table = _table("mean length", "reserved", "paged", "times")
    for row in reservations(plan):
        ratio = f"{row.paged / row.naive:.1f}" if row.naive else ""
        table.add_row(f"{row.tokens:,}", f"{row.naive:,}", f"{row.paged:,}", ratio)
    return f"Sequences at once: {length:,} tokens reserved for each, or pages", table


def _table(first: str, *others: str) -> Table:
    table = Table()
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _pool(budget: Budget) -> str:
    if budget.missing:
        return f"[red]none: {format_bytes(budget.missing)} short[/red]"
    return format_bytes(budget.kv_pool)


def _or_unknown(amount: int | None) -> str:
    return UNKNOWN if amount is None else format_bytes(amount)
