"""Groups of caches whose pages differ, packed side by side in blocks as DeepSeek-V4 needs them.

Every block of the pool is as large as the largest group; others leave its end unused. Source: vLLM
0.32, _get_packed_kv_cache_groups of v1/core/kv_cache_utils.py.
"""

from collections.abc import Hashable, Sequence

Uniform = tuple[str, int | None, int]
"""Kind, window and block size."""


def packed(pages: Sequence[tuple[Uniform, int]]) -> list[list[int]]:
    """pages: what each cache is, and its bytes. Returns the groups as numbers of caches, in order.

    A bucket of caches that need equally many blocks is cut so that its pages repeat in each group
    as often as in those of the other buckets; one of windows where nothing repeats, so that it
    makes no block larger.
    """
    buckets: dict[Hashable, dict[int, list[int]]] = {}
    for number, (uniform, nbytes) in enumerate(pages):
        buckets.setdefault(uniform, {}).setdefault(nbytes, []).append(number)
    repeats = _repeats(list(buckets.values()))
    cuts = {key: _cuts(bucket, repeats) for key, bucket in buckets.items()}
    if repeats is None:
        cuts |= _fitting(buckets, cuts)
    groups = []
    for key, bucket in buckets.items():
        if cuts[key] == 1:
            groups.append(sorted(number for numbers in bucket.values() for number in numbers))
            continue
        rows = list(zip(*bucket.values(), strict=False))
        groups += [
            [number for row in rows[first :: cuts[key]] for number in row]
            for first in range(cuts[key])
        ]
    return groups


def _balanced(bucket: dict[int, list[int]]) -> bool:
    """It has equally many caches of each size."""
    return len({len(numbers) for numbers in bucket.values()}) == 1


def _most(bucket: dict[int, list[int]]) -> int:
    return max(len(numbers) for numbers in bucket.values())


def _repeats(buckets: list[dict[int, list[int]]]) -> int | None:
    """Caches of one size in a group; None where no bucket repeats several sizes."""
    even = [bucket for bucket in buckets if _balanced(bucket)]
    least = max((_most(bucket) for bucket in even if len(bucket) > 1), default=0)
    if not least:
        return None
    counts = [_most(bucket) for bucket in even]
    return min(
        range(least, max(counts) + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
        default=least,
    )


def _cuts(bucket: dict[int, list[int]], repeats: int | None) -> int:
    return -(-_most(bucket) // repeats) if repeats and _balanced(bucket) else 1


def _fitting(
    buckets: dict[Hashable, dict[int, list[int]]], cuts: dict[Hashable, int]
) -> dict[Hashable, int]:
    """Cuts of buckets of windows into groups that fit the block which the others need."""

    def slides(key: Hashable) -> bool:
        return isinstance(key, tuple) and key[0] == "sliding"

    def widest(key: Hashable) -> int:
        parts = sum(map(len, buckets[key].values())) if slides(key) else cuts[key]
        return sum(-(-len(numbers) // parts) * size for size, numbers in buckets[key].items())

    block = max(map(widest, buckets))
    found = {}
    for key in filter(slides, buckets):
        first = next(iter(buckets[key]))
        count = sum(map(len, buckets[key].values()))
        found[key] = max(cuts[key], -(-count // max(block // first, 1)))
    return found
