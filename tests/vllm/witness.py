"""A witness in vLLM's scheduler process: writes down the pool's own state after each step.

It is a plugin of its own, knows nothing of kvscope, and reads vLLM's objects, never our events:
what was replayed from those is compared with it. It lies alone on the path of vLLM's interpreter,
so it imports nothing but the standard library and vLLM. One line of JSON for each call that may
change the pool, in `KVSCOPE_WITNESS/PID.jsonl`.

It also does what no user does: a file `fault` in that folder names a function that raises from then
on, and `KVSCOPE_WITNESS_RENAMES` gives a method of this vLLM a parameter of another name.
"""

import importlib
import json
import os
from functools import wraps
from pathlib import Path

STATE_EVERY = 20
"""Steps from one whole state to the next; also after every call outside a step, and when idle."""


class Witness:
    """Writes what one scheduler's pool holds."""

    def __init__(self, scheduler, folder):
        self.pool = scheduler.kv_cache_manager.block_pool
        self.scheduler = scheduler
        parallel = scheduler.vllm_config.parallel_config
        rank = getattr(parallel, "data_parallel_index", parallel.data_parallel_rank)
        self.fault = folder / "fault"
        self.calls = 0
        self.inside = False  # of a call that is written down: those that it makes are not
        self.file = (folder / f"{os.getpid()}.jsonl").open("w", buffering=1)
        self.write({"call": "created", "engine": rank, "num_blocks": self.pool.num_gpu_blocks})

    def write(self, line):
        self.file.write(json.dumps(line) + "\n")

    def look(self, call, tokens=0):
        """Write the counts, and now and then every block."""
        queue = self.pool.free_block_queue.get_all_free_blocks()
        cached = [block.block_id for block in queue if block.block_hash is not None]
        blocks = [block for block in self.pool.blocks if not block.is_null]
        line = {
            "call": call,
            "tokens": tokens,
            "active": sum(block.ref_cnt > 0 for block in blocks),
            "cached": len(cached),
            "free": self.pool.get_num_free_blocks() - len(cached),
            "running": len(self.scheduler.running),
        }
        if call != "step" or self.calls % STATE_EVERY == 0 or not self.scheduler.requests:
            line["lru"] = cached
            line["references"] = {b.block_id: b.ref_cnt for b in blocks if b.ref_cnt}
            hashes = ((block.block_id, block.block_hash) for block in blocks)
            line["hashes"] = {number: bytes(h).hex() for number, h in hashes if h is not None}
        self.calls += 1
        self.write(line)
        if self.fault.exists():
            break_function(self.fault.read_text())
            self.fault.unlink()

    def watch(self, name, call):
        """Have the scheduler's method looked at whenever it was called from outside."""
        original = getattr(self.scheduler, name)

        @wraps(original)
        def watched(*args, **kwargs):
            if self.inside:
                return original(*args, **kwargs)
            self.inside = True
            try:
                result = original(*args, **kwargs)
            finally:
                self.inside = False
            tokens = args[0].total_num_scheduled_tokens if call == "step" else 0
            self.look(call, tokens)
            return result

        setattr(self.scheduler, name, watched)


class GroupWitness:
    """Writes what each group had at every admission, by vLLM's own look-up of single groups, and
    which group's blocks lose their content; in `PID.groups`."""

    def __init__(self, scheduler, folder):
        self.manager = scheduler.kv_cache_manager
        self.allocate = self.manager.allocate_slots
        self.manager.allocate_slots = self.allocate_slots
        pool = self.manager.block_pool
        self.evict = pool._maybe_evict_cached_block
        pool._maybe_evict_cached_block = self.evict_cached
        self.file = (folder / f"{os.getpid()}.groups").open("w", buffering=1)

    def write(self, **line):
        self.file.write(json.dumps(line) + "\n")

    def allocate_slots(self, request, *args, **kwargs):
        """A request that waits is asked about; it is admitted if it gets blocks."""
        alone = None
        waits = request.status.name != "RUNNING" and not request.num_computed_tokens
        if waits and not request.skip_reading_prefix_cache:
            ask = self.manager.coordinator.find_longest_cache_hit_per_group
            _, alone = ask(request.block_hashes, request.num_tokens - 1)
        result = self.allocate(request, *args, **kwargs)
        if result is not None and alone is not None:
            found = args[1] if len(args) > 1 else kwargs.get("num_new_computed_tokens", 0)
            first = not request.num_preemptions
            self.write(asked=request.num_tokens, found=found, alone=alone, first=first)
        return result

    def evict_cached(self, block):
        """A hash ends with its group."""
        name, evicted = block.block_hash, self.evict(block)
        if evicted:
            self.write(evicted=int.from_bytes(bytes(name)[-4:], "big"))
        return evicted


class InjectedError(Exception):
    """It is never caught by name."""


def break_function(where):
    """`where`: MODULE:CLASS.METHOD, which raises whenever it is called from now on."""
    module, _, path = where.partition(":")
    owner, _, method = path.rpartition(".")
    holder = getattr(importlib.import_module(module), owner)

    def broken(*args, **kwargs):
        raise InjectedError(where)

    setattr(holder, method, broken)


def rename_parameter():
    """A vLLM that is not known: what it allocates for is not called `request`."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original = KVCacheManager.allocate_slots

    def allocate_slots(self, sequence, *args, **kwargs):
        return original(self, sequence, *args, **kwargs)

    KVCacheManager.allocate_slots = allocate_slots


def register():
    """Called by vLLM in each of its processes; only one with a scheduler writes."""
    from vllm.v1.core.sched.scheduler import Scheduler

    if os.environ.get("KVSCOPE_WITNESS_RENAMES"):
        rename_parameter()
    folder = os.environ.get("KVSCOPE_WITNESS")
    if not folder:
        return
    created = Scheduler.__init__

    @wraps(created)
    def create(self, *args, **kwargs):
        created(self, *args, **kwargs)
        witness = Witness(self, Path(folder))
        witness.watch("update_from_output", "step")
        witness.watch("finish_requests", "finish")
        witness.watch("reset_prefix_cache", "reset")
        if hasattr(self.kv_cache_manager.coordinator, "find_longest_cache_hit_per_group"):
            GroupWitness(self, Path(folder))

    Scheduler.__init__ = create
