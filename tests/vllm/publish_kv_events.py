"""Publishes KV events by vLLM's own publisher, in the Python of a vLLM: `ENDPOINT REPLAY`.

Three steps before the first line of its input, a reset after it; ends with its input.
"""

import sys


def main() -> None:
    from vllm.distributed.kv_events import (
        AllBlocksCleared,
        BlockRemoved,
        BlockStored,
        KVEventBatch,
        ZmqEventPublisher,
    )

    def stored(*names: int, parent: int | None = None, medium: str = "GPU") -> BlockStored:
        hashes, tokens = [2**64 - name for name in names], [7] * 16 * len(names)
        before = None if parent is None else 2**64 - parent
        return BlockStored(hashes, before, tokens, 16, None, medium, None, group_idx=0)

    publisher = ZmqEventPublisher(0, sys.argv[1], sys.argv[2])
    for events in (
        [stored(1, 2), stored(9, medium="CPU")],
        [stored(3, parent=2), BlockRemoved([2**64 - 1], "GPU", 0)],
        [stored(1)],
    ):
        publisher.publish(KVEventBatch(1.5, events))
    print("published", flush=True)
    sys.stdin.readline()
    publisher.publish(KVEventBatch(2.5, [AllBlocksCleared()]))
    sys.stdin.read()


if __name__ == "__main__":
    main()
