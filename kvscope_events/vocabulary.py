"""The words of the contract: closed sets of causes, reasons and kinds, which are labels as well.

Append-only, like the fields that hold them. An older reader leaves out the events that hold a word
it does not know, and counts them (`unknown_event`); see `CONTRACT_VERSION`.
"""

from typing import Literal

ServerKind = Literal["kvscope", "vllm", "sglang", "ray", "dynamo", "llama.cpp"]
RequestUnit = Literal["call", "sequence"]
Route = Literal["generation", "other"]
"""Requests with a body that a front end answers: those that generate tokens, and all others."""
Operation = Literal["", "chat", "text_completion"]
"""The route of a call, in the words of OpenTelemetry's `gen_ai.operation.name`."""
GroupKind = Literal["full_attention", "sliding_window", "state"]
AllocationCause = Literal["prefill", "decode", "cow", "swap_in"]
SharingCause = Literal["prefix_hit", "cow", "pin", "fork"]
EvictionCause = Literal["capacity", "reset", "ordered"]
ContentCause = Literal["replaced", "moved", "invalid"]
ReleaseCause = Literal[
    "finished",
    "aborted",
    "preempted",
    "out_of_window",
    "cow",
    "unpinned",
    "failed_load",
    "swapped_out",
]
PageSharingCause = Literal["prefix_hit", "duplicate", "pin"]
"""Duplicate: another sequence had made the same content findable first, and its pages are used."""
PageReleaseCause = Literal["finished", "aborted", "preempted", "duplicate", "unpinned"]
"""Duplicate: the sequence's own pages, for which it uses those of another sequence from now on."""
Tier = Literal["device", "host", "disk", "remote", "other"]
"""Places of content: the device's own pool, this host's memory, its disks, elsewhere."""
TransferDirection = Literal["load", "store"]
"""Into the pool, or out of it into another tier."""
PreemptionMode = Literal["recompute", "swap"]
SwapDirection = Literal["out", "in"]
PreemptionCause = Literal["out_of_blocks", "out_of_memory", "reset"]
AdmissionStop = Literal["empty", "paused", "sequences", "blocks", "tokens", "unexplained"]
"""Reasons why a step admitted no further request: no request waited but for reasons of its own, a
paused scheduler, the limit on sequences, missing blocks (or a preemption in the same step), the
token budget or the limit on a chunk, or nothing that explains it. Of several that hold, the first
in this order."""
Deferral = Literal["transfer", "grammar", "adapter", "other"]
"""Reasons of a waiting sequence's own, for which a step passes it over."""
OutOfMemoryAction = Literal["retried", "gave_up"]
StartPhase = Literal["import", "device", "weights", "profile", "pool", "warm_up"]
"""Parts of the start of a server's worker, in their order: the process up to its device; the device
with the connections between ranks; loading; measuring what a step needs; the KV pool; compiling,
graphs and the first steps."""
FinishReason = Literal["stop", "length", "abort", "error", "stop_string_or_abort"]
"""Reasons why a sequence ended. The last is for schedulers whose front end looks for stop strings:
they see the same abort whether one was found or the client has left."""
SizingTerm = Literal[
    "total",
    "requested",
    "in_use_at_start",
    "weights",
    "buffers",
    "activation_peak",
    "non_torch",
    "kv_pool",
    "unclaimed",
]
"""Terms of a pool's size; all but the first two add up to the first.

A CPU has no activation_peak and no non_torch.
"""
RejectReason = Literal[
    "queue_full", "prompt_too_long", "invalid", "draining", "engine_dead", "client_limit"
]

CLIENT_KEY = "kvscope.client"
"""Key of an ASGI scope with the name of the client whose key was used; absent without one."""
RequestPlace = Literal["before_engine", "in_engine", "after_engine"]
"""The place of a request that a front end has taken and not answered."""
