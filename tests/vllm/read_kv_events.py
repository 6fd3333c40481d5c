"""Reads KV events with vLLM's own types, in the Python of a vLLM: `FOLDER`, a file per payload.

Prints for each payload, in order of the files' names, what vLLM made of it and whether vLLM would
have sent the same bytes.
"""

import json
import sys
from pathlib import Path

import msgspec


def main() -> None:
    from vllm.distributed.kv_events import KVEventBatch

    decoder = msgspec.msgpack.Decoder(KVEventBatch)
    for path in sorted(Path(sys.argv[1]).iterdir()):
        payload = path.read_bytes()
        batch = decoder.decode(payload)
        read = {
            "rank": batch.data_parallel_rank,
            "time": batch.ts,
            "events": [
                [type(event).__name__, msgspec.to_builtins(event)] for event in batch.events
            ],
            "same": msgspec.msgpack.encode(batch) == payload,
        }
        print(json.dumps(read))


if __name__ == "__main__":
    main()
