"""Requests and steps, derived from the calls of `Scheduler`.

A step begins with `schedule` and ends with `update_from_output`. With async scheduling the next one
begins before that, so what is known of a step waits with its output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kvscope_events.events import FirstToken, StepCompleted, StepScheduled
from kvscope_events.observers.vllm.admission import UNKNOWN
from kvscope_events.observers.vllm.check import check_counts
from kvscope_events.observers.vllm.introduction import name_space
from kvscope_events.observers.vllm.observer import now_ns
from kvscope_events.observers.vllm.requests import Ending, arrival
from kvscope_events.observers.vllm.slots import slots_filled
from kvscope_events.observers.vllm.wrappers import argument

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer, Started

Call = tuple[Any, ...]
Named = dict[str, Any]

EMPTY_STEP_NS = 100_000_000
"""vLLM makes empty steps each millisecond while it waits for loads: one per interval is
reported."""


def before_add(observer: Observer, args: Call, kwargs: Named) -> bool:
    """Whether the request is new; otherwise it is the next part of a streamed input."""
    request = argument(args, kwargs, 0, "request")
    sequence = observer.sequences.find(request.request_id)
    return sequence is None or sequence.ended


def added(observer: Observer, new: bool, result: None, args: Call, kwargs: Named) -> None:
    if observer.caching and observer.hello.name_space is None:
        _tell_name_space(observer)
    if new:
        now = now_ns()  # vLLM's own time of it is a little earlier
        request = argument(args, kwargs, 0, "request")
        observer.buffer += arrival(request, observer.sequences.add(request, now))
    outside(observer, None, None, args, kwargs)


def before_schedule(observer: Observer, args: Call, kwargs: Named) -> None:
    observer.schedule_ns = now_ns()
    throttled = args[0] if args else kwargs.get("throttle_prefills")  # since 0.24
    observer.admission.begin(is_throttled=bool(throttled))


def scheduled(observer: Observer, note: None, output: Any, args: Call, kwargs: Named) -> None:
    observer.place_blocks()
    total = output.total_num_scheduled_tokens
    chunks: dict[int, int] = {}
    # One token each within the budget: all decode. A prefill chunk of one token uses the budget up.
    if total != len(output.num_scheduled_tokens) or total >= observer.token_budget:
        chunks = _chunks(observer, output)
    prefill = sum(chunks.values())
    room = observer.token_budget - total
    try:
        stop = observer.admission.stop(output, room, prefill)
    except AttributeError:  # another vLLM, which keeps it elsewhere
        stop = UNKNOWN
    observer.steps.append((output, observer.schedule_ns, prefill, total - prefill, stop))
    if chunks or (observer.reports_chunks and total):
        observer.buffer.append(StepScheduled([*chunks], [*chunks.values()], max(0, room)))


def updated(observer: Observer, note: None, result: Any, args: Call, kwargs: Named) -> None:
    """The end of a step."""
    now = now_ns()
    output = argument(args, kwargs, 0, "scheduler_output")
    step = _step_of(observer, output)
    if step is None and observer.joins:  # scheduled before the observer came
        outside(observer, note, result, args, kwargs)
        return
    observer.joins = False
    _, begun_ns, prefill, decode, stop = step or (output, now, 0, 0, UNKNOWN)
    emitted: list[int] = []
    first_tokens: list[int] = []
    emitted_tokens: list[int] = []
    further_tokens = 0  # beyond the first of each
    find, buffer, emit = observer.sequences.find, observer.buffer, emitted.append
    for client in result.values() if result else ():
        # vLLM's own timestamp, so that our times equal its own.
        at_ns = int(client.timestamp * 1e9) or now
        for one in client.outputs:
            produced = len(one.new_token_ids)
            if not produced:
                continue
            sequence = find(one.request_id)
            if sequence is None:
                continue
            if produced > 1:
                further_tokens += produced - 1
            emit(sequence.number)
            emitted_tokens.append(produced)
            sequence.last_token_ns = at_ns
            if sequence.first_token_ns is None:
                sequence.first_token_ns = at_ns
                first_tokens.append(sequence.number)
                elapsed_ns = max(0, at_ns - sequence.arrived_ns)
                buffer.append(FirstToken(sequence.number, elapsed_ns))
    if observer.endings:
        tell_endings(observer)
    if observer.offloading is not None and result:
        buffer += observer.offloading.transferred(result.values())
    if (
        not (buffer or emitted or prefill or decode)
        and now - observer.step_told_ns < EMPTY_STEP_NS
        and not observer.snapshot_owed
    ):
        return
    drafts = getattr(output, "scheduled_spec_decode_tokens", None)
    drafted = sum(map(len, drafts.values())) if drafts else 0
    observer.step_told_ns = now
    if prefill + decode > observer.largest_step:
        observer.largest_step = prefill + decode
    running, waiting = observer.scheduler.get_request_counts()
    free = observer.pool.get_num_free_blocks()
    active = observer.usable_blocks - free
    counts = observer.counts
    buffer.append(
        StepCompleted(
            now - begun_ns,
            running,
            waiting,
            0,
            prefill,
            decode,
            slots_filled(observer, now) if observer.slots_known else None,
            active,
            counts.cached,
            free - counts.cached,
            emitted,
            first_tokens,
            running,
            waiting,
            len(emitted) + further_tokens if further_tokens else None,
            0,
            drafted or None,
            min(further_tokens, drafted) if drafted else None,
            emitted_tokens if further_tokens else [],
            None,
            *stop,
        )
    )
    if counts.active != active or observer.in_doubt:
        check_counts(observer, active, now)
    if observer.live:
        observer.flush()


def ended(observer: Observer, note: None, result: Any, args: Call, kwargs: Named) -> None:
    """A request ended; its blocks may follow later. Reported once its last token is known."""
    request = argument(args, kwargs, 0, "request")
    sequence = observer.sequences.find(request.request_id)
    if sequence is None or sequence.ended:
        return
    sequence.ended = True
    observer.endings.append(Ending(request, sequence, now_ns()))
    if request.request_id not in observer.scheduler.requests:
        observer.leaving.append(request.request_id)


def outside(observer: Observer, note: Any, result: Any, args: Call, kwargs: Named) -> None:
    """A call outside a step: no step may follow while the engine idles or is paused."""
    if observer.depth:
        return
    tell_endings(observer)
    if observer.buffer:
        observer.flush()


def _step_of(observer: Observer, output: Any) -> Started | None:
    """The step that ends with this output, or None; those before it that never ended are
    forgotten."""
    steps = observer.steps
    if steps and steps[0][0] is output:  # as nearly always
        return steps.popleft()
    if all(step[0] is not output for step in steps):
        return None
    while (step := steps.popleft())[0] is not output:
        pass
    return step


def before_reset(observer: Observer, args: Call, kwargs: Named) -> None:
    observer.resetting = True


def shut_down(observer: Observer, note: None, result: None, args: Call, kwargs: Named) -> None:
    observer.close()


def before_copies_freed(observer: Observer, args: Call, kwargs: Named) -> None:
    """Both ends of a copy were held until it was made; they may be freed some steps later."""
    blocks = [b.block_id for b in argument(args, kwargs, 0, "blocks") if not b.is_null]
    if blocks:
        observer.will_free(blocks, (None, "cow"))


def _tell_name_space(observer: Observer) -> None:
    """vLLM sets the root of its names once its scheduler is there."""
    space = name_space(observer.hello, observer.created)
    if space is not None:
        observer.hello = msgspec.structs.replace(observer.hello, name_space=space)
        observer.buffer.append(observer.hello)


def tell_endings(observer: Observer) -> None:
    for ending in observer.endings:
        observer.buffer += ending.events()
    observer.endings.clear()
    for request_id in observer.leaving:
        observer.sequences.forget(request_id)
    observer.leaving.clear()


def _chunks(observer: Observer, output: Any) -> dict[int, int]:
    """Tokens of the sequences that owed more than their newest one; drafts are not owed."""
    requests = observer.scheduler.requests
    drafts = getattr(output, "scheduled_spec_decode_tokens", None) or {}
    find = observer.sequences.find
    chunks: dict[int, int] = {}
    for request_id, count in output.num_scheduled_tokens.items():
        owed = count - len(drafts[request_id]) if request_id in drafts else count
        if owed == 1:
            request = requests[request_id]
            if request.num_computed_tokens >= request.num_tokens:
                continue
        sequence = find(request_id)
        number = 0 if sequence is None else sequence.number  # 0: it came before the observer
        chunks[number] = chunks.get(number, 0) + count
    return chunks
