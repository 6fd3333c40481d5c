"""One block's whole life in our pool, events on, against vLLM's BlockPool, metrics and events off.

A life: allocated by evicting the oldest cached block, cached under a given hash, hit once, released
twice. Also the digest of one 16-token block against vLLM's `hash_block_tokens`. Runs both in one
process, alternating, so it needs an interpreter that has vLLM beside msgspec:

    VLLM_PYTHON -m benchmarks.pool_life

Without vLLM it prints our own figures only.
"""

import itertools
import json
import os
import sys
import tracemalloc
from collections.abc import Callable
from statistics import median
from time import perf_counter

from benchmarks.report import environment
from engine.block_pool import BlockPool
from engine.hashing import PrefixHasher, chain_seed
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


def ns_per_block(runs: dict[str, Lives], per_request: int) -> dict[str, float]:
    """Median over alternating rounds, harness taken off."""
    requests = max(1, 8_000 // per_request)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, lives in runs.items():
            start = perf_counter()
            lives(requests)
            times[name].append((perf_counter() - start) / (requests * per_request) * 1e9)
    harness = median(times.pop("harness"))
    return {name: median(samples) - harness for name, samples in times.items()}


def compare_lives() -> dict[str, dict[str, float]]:
    rows = {}
    for per_request in BLOCKS_PER_REQUEST:
        runs = {
            "harness": harness_cost(per_request),
            "kvscope": our_lives(POOL_BLOCKS, per_request),
        }
        theirs = vllm_lives(POOL_BLOCKS, per_request)
        if theirs is not None:
            runs["vllm"] = theirs
        row = ns_per_block(runs, per_request)
        if theirs is not None:
            row["ratio"] = row["kvscope"] / row["vllm"]
        rows[f"{per_request} blocks per request"] = row
    return rows


def compare_digests() -> dict[str, float]:
    tokens = list(range(40_000, 40_000 + 64 * BLOCK_SIZE))
    seed = chain_seed("model")
    samples: dict[str, list[float]] = {"kvscope": [], "vllm": []}
    try:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import hash_block_tokens, init_none_hash

        init_none_hash(sha256)
    except ImportError:
        del samples["vllm"]
    repeats = 100
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(repeats):
            PrefixHasher(seed, BLOCK_SIZE).extend(tokens, 64)
        samples["kvscope"].append((perf_counter() - start) / (64 * repeats) * 1e9)
        if "vllm" not in samples:
            continue
        start = perf_counter()
        for _ in range(repeats):
            parent = None
            for at in range(0, len(tokens), BLOCK_SIZE):
                parent = hash_block_tokens(sha256, parent, tokens[at : at + BLOCK_SIZE])
        samples["vllm"].append((perf_counter() - start) / (64 * repeats) * 1e9)
    row = {name: median(times) for name, times in samples.items()}
    if "vllm" in row:
        row["ratio"] = row["kvscope"] / row["vllm"]
    return row


def pool_growth() -> dict[str, dict[str, float]]:
    """Cost and memory from a thousand to a million blocks, every block cached; vLLM's cost beside.

    Every operation takes the same number of steps at any size; what grows is the share of memory
    accesses that miss the processor's caches.
    """
    rows = {}
    for num_blocks in (1_000, 10_000, 100_000, 1_000_000):
        tracemalloc.start()
        lives = our_lives(num_blocks, 64)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        runs = {"harness": harness_cost(64), "kvscope": lives}
        theirs = vllm_lives(num_blocks, 64)
        if theirs is not None:
            runs["vllm"] = theirs
        row = ns_per_block(runs, 64)
        row["bytes_per_block"] = held / num_blocks
        rows[f"{num_blocks} blocks"] = row
    return rows


def main() -> None:
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    tables = {"life_ns_per_block": compare_lives(), "growth": pool_growth()}
    digests = compare_digests()
    for title, table in tables.items():
        for name, row in table.items():
            cells = "  ".join(f"{key} {value:8.2f}" for key, value in row.items())
            print(f"{title:18} {name:24} {cells}", file=sys.stderr)
    print("digest_ns_per_block", digests, file=sys.stderr)
    print(json.dumps({"environment": environment(), **tables, "digest_ns_per_block": digests}))


if __name__ == "__main__":
    main()
