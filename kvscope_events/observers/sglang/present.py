"""The requests that a scheduler holds between two passes of its loop, and who goes on with them."""

from typing import Any

from kvscope_events.observers.sglang.steps import Steps


def go_on(steps: Steps, before: Steps) -> None:
    """Follow requests and pages from here on, some time after `before` has stopped doing so."""
    scheduler, pages = steps.scheduler, steps.pages
    steps.begins()
    steps.largest_step = before.largest_step
    steps.sequences.number_from(before.sequences)
    requests = running(scheduler)
    steps.sequences.adopt(requests, scheduler.waiting_queue, steps.began_ns)
    # A tier's writes hold references of their own, which are in no list.
    pages.recount(None if pages.has_host_tier else references(requests, pages.page))


def results_in_flight(scheduler: Any) -> list[Any]:
    """Batches that were launched, and whose results are still to be processed."""
    return [batch for batch, *_ in getattr(scheduler, "result_queue", None) or ()]


def running(scheduler: Any) -> list[Any]:
    """Those that have a row, and so pages: they decode, or are in the middle of their prompt."""
    found = {}
    launched = results_in_flight(scheduler)
    for batch in (scheduler.running_batch, scheduler.last_batch, *launched):
        for request in (batch.reqs or ()) if batch is not None else ():
            found[request.rid] = request
    chunked = getattr(scheduler, "chunked_req", None)
    if chunked is not None:
        found[chunked.rid] = chunked
    return [request for request in found.values() if _has_row(request)]


def references(requests: list[Any], page: int) -> int:
    """References of running requests to their pages, private ones and those in the tree."""
    return sum(-(-int(request.kv.kv_allocated_len) // page) for request in requests)


def _has_row(request: Any) -> bool:
    """Its row is in a record of the request's own since 0.5.21, before that in the request."""
    owner = request if hasattr(request, "req_pool_idx") else request.kv
    return owner.req_pool_idx is not None
