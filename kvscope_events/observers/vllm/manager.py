"""Requests that get and give back blocks, derived from the calls of `KVCacheManager`.

`allocate_slots` runs for every running request in every step, nearly always without effect: its
wrapper then only notes the request, calls the original, and checks for None.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kvscope_events.events import (
    AllocationFailed,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
)
from kvscope_events.observers.vllm.facts import LookedUp
from kvscope_events.observers.vllm.observer import BUFFER_NAMES, now_ns
from kvscope_events.observers.vllm.requests import release_cause
from kvscope_events.observers.vllm.wrappers import Method, Site, argument, compiled

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer
    from kvscope_events.observers.vllm.wrappers import Hook

Call = tuple[Any, ...]
Named = dict[str, Any]
Entry = tuple[int, bool]
"""Length of the buffer when the call began, and whether nothing of the request was computed."""
Victim = tuple[int, int]
"""References to all blocks when the call began, and tokens that a victim loses."""

_RUNNING = """
    _observer = _site.observer
    try:
        _runs = (
            _observer is not None
            and self is _observer.manager
            and request.status is _observer.running
        )
    except AttributeError:
        _runs = False
    if not _runs:
        return _any(self, {named})
    _observer.request = request
    try:
        _result = _original({arguments})
    finally:
        _observer.request = None
    if _result is None:
        _failed(_observer, {named})
    return _result
"""
"""The wrapper of `allocate_slots` for a running request, which is nearly every call.

Its own names begin with `_`, so that none collides with vLLM's parameters."""


def allocating(site: Site, hook: Hook, original: Method) -> Method:
    """The wrapper of `allocate_slots`."""
    name, after = f"{hook.owner}.{hook.method}", hook.after
    of_any = _allocating_any(site, hook, original)

    def failed(observer: Observer, **kwargs: Any) -> None:
        if observer.live:
            try:
                after(observer, None, None, (), kwargs)  # type: ignore[misc]
            except Exception as error:
                observer.fail(error, name)

    names = {"_site": site, "_any": of_any, "_original": original, "_failed": failed}
    return compiled(original, _RUNNING, names) or of_any


def _allocating_any(site: Site, hook: Hook, original: Method) -> Method:
    name, before, after = f"{hook.owner}.{hook.method}", hook.before, hook.after

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = site.observer
        if observer is None or self is not observer.manager:
            if observer is None and not site.began:
                site.foreign()
            return original(self, *args, **kwargs)
        try:
            observer.request = request = args[0] if args else kwargs["request"]
            running = request.status is observer.running
            entry = None if running else before(observer, args, kwargs)  # type: ignore[misc]
        except Exception as error:
            observer.fail(error, name)
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        finally:
            observer.request = None
        if (result is None or not running) and observer.live:
            try:
                after(observer, entry, result, args, kwargs)  # type: ignore[misc]
            except Exception as error:
                observer.fail(error, name)
        return result

    return wrapper


def before_slots(observer: Observer, args: Call, kwargs: Named) -> Entry:
    request = observer.request
    fresh = request.num_computed_tokens == 0
    if fresh and observer.group_hits is not None and _reads_cache(observer, request):
        observer.group_hits.expect(request, _local_hit(args, kwargs))
    return len(observer.buffer), fresh


def slots(observer: Observer, entry: Entry | None, result: Any, args: Call, kwargs: Named) -> None:
    """Called if nothing was allocated, or for a request that was not running."""
    request = argument(args, kwargs, 0, "request")
    if entry is None:
        _failed(observer, request, args, kwargs)
    elif result is not None:
        observer.admission.admitted = True
        _admitted(observer, entry, request, args, kwargs)
    else:  # for a waiting request it is normal to find no room
        observer.admission.no_blocks = True
        if observer.group_hits is not None:
            observer.group_hits.take()


def fitted(observer: Observer, note: None, fits: bool, args: Call, kwargs: Named) -> None:
    """A waiting request is admitted only if there is room for all of it."""
    if not fits:
        observer.admission.no_blocks = True


def before_free(observer: Observer, args: Call, kwargs: Named) -> Victim:
    observer.place_blocks()
    request = argument(args, kwargs, 0, "request")
    cause = release_cause(request)
    observer.releasing = (observer.sequences.number_of(request), cause)
    return observer.counts.references, _computed(request) if cause == "preempted" else -1


def gave_back(observer: Observer, victim: Victim, result: None, args: Call, kwargs: Named) -> None:
    """A request gave back all blocks: it finished, was preempted, or its external load failed."""
    request = argument(args, kwargs, 0, "request")
    references, computed = victim
    if computed >= 0:
        _preempted(observer, request, computed, references - observer.counts.references)
    _forget_ended(observer, request)


def gives_back_later(
    observer: Observer, victim: Victim, result: list[Any], args: Call, kwargs: Named
) -> None:
    """The same, but a step in flight still writes the blocks: they are freed after it."""
    request = argument(args, kwargs, 0, "request")
    _, computed = victim
    # By then the request is gone; the release is recognised by its blocks, in reverse order.
    blocks = [block.block_id for block in reversed(result) if not block.is_null]
    if blocks:
        owner = (observer.sequences.number_of(request), release_cause(request))
        observer.will_free(blocks, owner)
    if computed >= 0:
        _preempted(observer, request, computed, len(blocks))
    _forget_ended(observer, request)


def before_skipped(observer: Observer, args: Call, kwargs: Named) -> None:
    sequence = observer.sequences.find(argument(args, kwargs, 0, "request_id"))
    observer.releasing = (None if sequence is None else sequence.number, "out_of_window")


def _admitted(observer: Observer, entry: Entry, request: Any, args: Call, kwargs: Named) -> None:
    sequence = observer.sequences.find(request.request_id)
    if sequence is None:
        return
    begin, fresh = entry
    found = request.num_computed_tokens  # by now what a connector has loaded
    if fresh:
        local = _local_hit(args, kwargs)
        loaded = kwargs.get("num_external_computed_tokens", 0)
        found = local + loaded
        sequence.local_tokens = local
        if _reads_cache(observer, request):
            _looked_up(observer, begin, request, (local, loaded), sequence.number)
    if kwargs.get("delay_cache_blocks"):
        return  # blocks to load into; it runs once that is done
    now = now_ns()
    number = sequence.number
    sequence.admitted_ns = now
    if sequence.scheduled_ns is None:
        sequence.scheduled_ns = now
        sequence.queue_ns = max(0, (observer.schedule_ns or now) - sequence.arrived_ns)
        sequence.computed_tokens = max(0, request.num_prompt_tokens - found)
        observer.buffer.append(RequestScheduled(number, sequence.queue_ns, found))
    elif sequence.preempted_ns is not None:
        again = min(found, sequence.discarded_tokens)
        loaded = max(0, again - sequence.local_tokens)  # behind the hits
        observer.buffer.append(
            RequestResumed(
                number,
                number,
                sequence.discarded_tokens - again,
                again,
                max(0, now - sequence.preempted_ns),
                0,
                loaded,
                observer.tier if loaded else None,
            )
        )
        sequence.preempted_ns = None
    if observer.buffered_names > BUFFER_NAMES:
        observer.flush()


def _looked_up(
    observer: Observer, begin: int, request: Any, found: tuple[int, int], number: int
) -> None:
    """Goes before the first event of the call: what the call evicted was still there at the
    look-up.

    found: tokens that the pool held, and those that a connector loads.
    """
    block_size = observer.block_size
    hit_tokens, loaded_tokens = found
    full = (request.num_tokens - 1) // block_size
    observer.buffered_names += full
    fact = LookedUp(
        number,
        request.num_tokens,
        request.block_hashes[:full],
        hit_tokens // block_size,
        request.num_preemptions > 0,
        loaded_tokens,
        observer.tier if loaded_tokens else None,
        [] if observer.group_hits is None else observer.group_hits.take(),
    )
    observer.buffer.insert(begin, fact)


def _local_hit(args: Call, kwargs: Named) -> int:
    """Tokens that the pool held."""
    return int(args[2] if len(args) > 2 else kwargs.get("num_new_computed_tokens", 0))


def _reads_cache(observer: Observer, request: Any) -> bool:
    return observer.caching and not getattr(request, "skip_reading_prefix_cache", False)


def _failed(observer: Observer, request: Any, args: Call, kwargs: Named) -> None:
    sequence = observer.sequences.find(request.request_id)
    if sequence is None:
        return
    tokens = argument(args, kwargs, 1, "num_new_tokens") + kwargs.get("num_lookahead_tokens", 0)
    tokens += request.num_computed_tokens
    held = observer.manager.get_blocks(request.request_id).blocks
    wanted = sum(
        max(0, -(-tokens // group.block_size) - len(blocks))
        for group, blocks in zip(observer.created.groups, held, strict=False)
    )
    available = observer.pool.get_num_free_blocks()
    observer.buffer.append(AllocationFailed(sequence.number, max(1, wanted), available))


def _preempted(observer: Observer, request: Any, computed: int, blocks: int) -> None:
    observer.admission.no_blocks = True  # the queue is not looked at
    sequence = observer.sequences.find(request.request_id)
    if sequence is None:
        return
    now = now_ns()
    sequence.preempted_ns = now
    sequence.discarded_tokens = computed
    age_ns = 0 if sequence.admitted_ns is None else now - sequence.admitted_ns
    observer.buffer.append(
        RequestPreempted(
            sequence.number,
            sequence.number,
            "recompute",
            "reset" if observer.resetting else "out_of_blocks",
            computed,
            blocks,
            age_ns,
        )
    )


def _computed(request: Any) -> int:
    """Tokens whose KV exists: vLLM also counts those in flight, which are not computed yet."""
    in_flight = getattr(request, "num_in_flight_tokens", None)  # since 0.26
    if in_flight is None:
        in_flight = getattr(request, "num_output_placeholders", 0)
    return max(0, int(request.num_computed_tokens - in_flight))


def _forget_ended(observer: Observer, request: Any) -> None:
    """A connector held the blocks of an ended request until now."""
    sequence = observer.sequences.find(request.request_id)
    if sequence is not None and sequence.ended:
        observer.sequences.forget(request.request_id)
