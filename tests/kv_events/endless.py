"""A publisher in a process of its own: `python -m tests.kv_events.endless ENDPOINT REPLAY COUNT`.

Stores one new block in each message, COUNT of them as fast as it can, and stays.
"""

import sys
import time

from tests.kv_events.dialects import one
from tests.kv_events.publisher import Publisher

if __name__ == "__main__":
    publisher = Publisher(*sys.argv[1:3])
    for block in range(int(sys.argv[3])):
        publisher.say(one(block), time=time.time())
        time.sleep(0.0005)
    print("said all", flush=True)
    time.sleep(600)
