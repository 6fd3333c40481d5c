"""One block's whole life in our pool, events on, against vLLM's BlockPool, metrics and events off.

A life: allocated by evicting the oldest cached block, cached under a given hash, hit once, released
twice. Also the digest of one 16-token block against vLLM's `hash_block_tokens`. Runs both in one
process, alternating, so it needs an interpreter that has vLLM beside msgspec:

    VLLM_PYTHON -m benchmarks.pool_life

Without vLLM it prints our own figures only.
"""

import itertools
import os
import tracemalloc
from collections.abc import Callable
from statistics import median
from time import perf_counter

from benchmarks.report import alternate, report
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_events.bus import EventBus

Lives = Callable[[int], None]  # run that many requests

BLOCK_SIZE = 16
POOL_BLOCKS = 10_000
BLOCKS_PER_REQUEST = (1, 8, 64)
BLOCKS_PER_STEP = 64
ROUNDS = 15


def our_lives(num_blocks: int, per_request: int) -> Lives:
    bus = EventBus()
    subscription = bus.subscribe(queue_batches=16)
    pool = BlockPool(num_blocks, BLOCK_SIZE, bus)
    serial = itertools.count()

    requests_per_step = max(1, BLOCKS_PER_STEP // per_request)

    def lives(requests: int) -> None:
        for number in range(requests):
            first = next(serial) * per_request
            hashes = [i.to_bytes(16) for i in range(first, first + per_request)]
            pool_life(hashes)
            if number % requests_per_step == 0:
                bus.flush()
        bus.flush()

    def pool_life(hashes: list[bytes]) -> None:
        table = list(pool.allocate(1, per_request, "prefill"))
        pool.cache(1, table, hashes, None)
        hit = pool.find(hashes)
        pool.share(2, hit)
        pool.release(1, table, "finished")
        pool.release(2, hit, "finished")

    lives(num_blocks // per_request + 1)  # from now on every allocation evicts
    assert pool.num_free < per_request
    assert subscription.take() is not None
    return lives


def vllm_lives(num_blocks: int, per_request: int) -> Lives | None:
    try:
        from vllm.v1.core.block_pool import BlockPool as TheirPool
    except ImportError:
        return None
    pool = TheirPool(num_blocks + 1, enable_caching=True, hash_block_size=BLOCK_SIZE)
    serial = itertools.count()

    class Request:  # all that cache_full_blocks reads when events are off
        block_hashes: list[bytes]

    request = Request()

    def lives(requests: int) -> None:
        for _ in range(requests):
            first = next(serial) * per_request
            hashes = [i.to_bytes(16) for i in range(first, first + per_request)]
            request.block_hashes = hashes
            blocks = pool.get_new_blocks(per_request)
            pool.cache_full_blocks(request, blocks, 0, per_request, BLOCK_SIZE, 0)
            hit = []
            for block_hash in hashes:
                found = pool.get_cached_block(block_hash, [0])
                if found is None:
                    break
                hit.append(found[0])
            pool.touch(hit)
            pool.free_blocks(reversed(blocks))
            pool.free_blocks(reversed(hit))

    lives(num_blocks // per_request + 1)
    return lives


def harness_cost(per_request: int) -> Lives:
    """Cost of making hashes, common to both loops; subtracted from both figures."""
    serial = itertools.count()

    def lives(requests: int) -> None:
        for _ in range(requests):
            first = next(serial) * per_request
            _ = [i.to_bytes(16) for i in range(first, first + per_request)]

    return lives


def ns_per_block(num_blocks: int, per_request: int) -> dict[str, float]:
    """Median over alternating rounds, harness taken off; vLLM's where there is one."""
    requests = max(1, 8_000 // per_request)
    tracemalloc.start()
    ours = our_lives(num_blocks, per_request)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    runs = {"harness": harness_cost(per_request), "kvscope": ours}
    theirs = vllm_lives(num_blocks, per_request)
    if theirs is not None:
        runs["vllm"] = theirs

    def timed(lives: Lives) -> Callable[[int], float]:
        return lambda _: seconds_of(lambda: lives(requests)) / (requests * per_request) * 1e9

    times = alternate({name: timed(lives) for name, lives in runs.items()}, ROUNDS)
    harness = median(times.pop("harness"))
    row = {name: median(samples) - harness for name, samples in times.items()}
    return _with_ratio(row) | {"bytes_per_block": held / num_blocks}


def seconds_of(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _with_ratio(row: dict[str, float]) -> dict[str, float]:
    return row | ({"ratio": row["kvscope"] / row["vllm"]} if "vllm" in row else {})


def compare_digests() -> dict[str, float]:
    tokens = list(range(40_000, 40_000 + 64 * BLOCK_SIZE))
    seed = chain_seed("model")

    def ours(_: int) -> float:
        return seconds_of(lambda: PrefixHasher(seed, BLOCK_SIZE).extend(tokens, 64))

    sides = {"kvscope": ours}
    try:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import hash_block_tokens, init_none_hash
    except ImportError:
        pass
    else:
        init_none_hash(sha256)

        def chain() -> None:
            parent = None
            for at in range(0, len(tokens), BLOCK_SIZE):
                parent = hash_block_tokens(sha256, parent, tokens[at : at + BLOCK_SIZE])

        sides["vllm"] = lambda _: seconds_of(chain)
    times = alternate(sides, 100 * ROUNDS)
    return _with_ratio({name: median(each) / 64 * 1e9 for name, each in times.items()})


def main() -> None:
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    rows: dict[str, object] = {
        f"a life, {per_request} blocks a request, ns a block": ns_per_block(
            POOL_BLOCKS, per_request
        )
        for per_request in BLOCKS_PER_REQUEST
    }
    for num_blocks in (1_000, 10_000, 100_000, 1_000_000):
        rows[f"a life in {num_blocks:,} blocks, ns a block"] = ns_per_block(num_blocks, 64)
    rows["a digest, ns a block"] = compare_digests()
    report("pool_life", rows)


if __name__ == "__main__":
    main()
