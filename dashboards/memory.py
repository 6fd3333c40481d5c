"""Memory and OOM risk: where all the bytes went, and the three ways to run out of them."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards import thresholds as limits
from dashboards.frame import Row, assemble, engine_variables, gpu_variable
from dashboards.links import KV_POOL, MEMORY, to_dashboard
from dashboards.memory_details import allocator, hardware, sizing
from dashboards.panels import BYTES, COUNT, RATIO, SECONDS, Q, graph, numbers
from dashboards.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    GPU,
    GPU_LEGEND,
    WHOLE_RANGE,
    added,
    gpu,
    gpu_room,
    of_chosen,
    or_zero,
    over_range,
    series,
    share,
    total,
    worst,
)
from dashboards.tables import Column, note, rows

BY_GPU = "instance, gpu, uuid"
_FROM_BELOW = (
    ("weights",),
    ("kv_pool",),
    ("torch_live_other", "torch_pending", "torch_cached"),
    ("non_torch", "server_process"),
    ("other_processes", "unattributed", "unsplit"),
    ("driver_reserved",),
    ("free",),
)
"""Components in the order of the stack: a query each, because the stack follows the queries."""
_HEADROOM = gpu("kvscope_gpu_memory_headroom_bytes")
_PEAK = gpu("kvscope_gpu_activation_peak_bytes")
_TOTAL = gpu("kvscope_gpu_memory_total_bytes")
_OTHERS = gpu("kvscope_gpu_memory_component_bytes", component="other_processes")
_OWN = gpu("kvscope_gpu_torch_memory_bytes", kind="reserved")
"""Cards that the server uses: on any other of its machine, all processes are others."""
_RETRIES = "kvscope_gpu_torch_alloc_retries_total"
_OOMS = "kvscope_engine_oom_events_total"
_NO_GPU = "No GPU is read here: `kvscope doctor` says why."


def _parts(components: tuple[str, ...]) -> str:
    return total(gpu("kvscope_gpu_memory_component_bytes", component=components), "component")


def _host(kind: str) -> str:
    return series("kvscope_host_memory_bytes", kind=kind)


def _host_used() -> str:
    """Of the limit, by engine, without file cache, which the kernel drops before it kills."""
    return share(worst(_host("unreclaimable"), BY_ENGINE), worst(_host("limit"), BY_ENGINE))


def build() -> db.Dashboard:
    """One card or all; choose a GPU to see its card alone."""
    return assemble(
        "Memory and OOM risk",
        MEMORY,
        "Where every byte of the card went, and how far each of three kinds of running out is.",
        [*engine_variables("kvscope_kv_capacity_blocks"), gpu_variable("kvscope_gpu_up")],
        [_verdict(), _where(), _modes(), sizing(), allocator(), hardware(), _advice()],
    )


def _verdict() -> Row:
    return Row(
        100,
        "Will it run out?",
        [
            numbers(
                101,
                "GPU: room left",
                "Memory that the next allocation can get, less the largest step so far, on the GPU "
                "where that is least. Red: the next step as large fails. Lower "
                "--gpu-memory-utilization, or find who grew below.",
                BYTES,
                Q(f"min({gpu_room()}) or min({_HEADROOM})", ""),
                steps=limits.ROOM_AFTER_PEAK_BYTES,
                when_absent="not known",
            ),
            numbers(
                102,
                "GPU: near misses",
                "Allocations in the time range on screen that succeeded only after torch had given "
                "back its cache: the earliest sign of a full device. Not 0: act before the first "
                "error.",
                COUNT,
                Q(total(of_chosen(over_range(_RETRIES, GPU), WHOLE_RANGE)), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                decimals=0,
                when_absent="no torch on a GPU",
            ),
            numbers(
                103,
                "GPU: out of memory",
                "Steps that ran out of device memory in the time range on screen. retried: with a "
                "smaller step, and no request was lost. gave up: its requests ended with an error. "
                "Not 0: runbook of the alert, and 'Where did the memory go' at that moment.",
                COUNT,
                Q(or_zero(total(over_range(_OOMS, action="retried"))), "retried"),
                Q(or_zero(total(over_range(_OOMS, action="gave_up"))), "gave up"),
                steps=limits.NONE_IS_GOOD,
                judged={"retried": limits.SOME_ARE_WORTH_A_LOOK},
                decimals=0,
            ),
            numbers(
                104,
                "GPU: held by others",
                "Memory of processes that are not this server, on its own GPU, where that is "
                "largest. It should be 0: `nvidia-smi` names them; move them away.",
                BYTES,
                Q(worst(f"{_OTHERS} and on (job, instance, uuid) {_OWN}"), ""),
                steps=((None, limits.GREEN), (2**28, limits.ORANGE)),
                when_absent="not known",
            ),
            numbers(
                105,
                "Pool: in use",
                "Blocks that requests reference. A full pool is no error: requests wait or are "
                "preempted. The KV pool dashboard says what that costs.",
                RATIO,
                Q(worst(series("kvscope_kv_usage_ratio", basis="active")), ""),
                steps=limits.POOL_USAGE,
                link=to_dashboard("KV pool", KV_POOL),
            ),
            numbers(
                106,
                "Host: of the limit",
                "Host memory of the control group, of its limit, without droppable file cache. At "
                "100 % the kernel kills the server without a word in its log. Raise the limit, or "
                "find out what grows below.",
                RATIO,
                Q(f"max({_host_used()})", ""),
                steps=limits.HOST_USED_SHARE,
                when_absent="no limit",
            ),
        ],
    )


def _where() -> Row:
    return Row(
        200,
        "Where did the memory go?",
        [
            graph(
                201,
                "Where did the memory go?",
                "Every byte of the card; the stack ends exactly at the line. Blue: this server. "
                "Red: other processes. Orange: nobody's that we can name. Grey: free. What grew "
                "before the trouble is the culprit. Several cards, or servers that see the same "
                "one: their sum; choose a server and a GPU above.",
                BYTES,
                *(Q(_parts(parts), "{{component}}") for parts in _FROM_BELOW),
                Q(total(_TOTAL), "total"),
                stacked=True,
                lines=("total",),
                colours=limits.MEMORY_COLOURS,
                low=None,
                height=12,
                span=16,
                right=True,
                calcs=("lastNotNull",),
                when_absent=_NO_GPU,
            ),
            note(202, "What is what?", _COMPONENTS, span=8, height=12),
            rows(
                203,
                "Cards",
                "One line a card and server, the fullest first. Room is what a step can still take "
                "beyond the largest so far: a red cell is where to begin.",
                Q(worst(_TOTAL, BY_GPU), "total"),
                Q(worst(gpu("kvscope_gpu_memory_used_ratio"), BY_GPU), "used"),
                Q(worst(_HEADROOM, BY_GPU), "headroom"),
                Q(worst(_PEAK, BY_GPU), "peak"),
                Q(worst(gpu_room(), BY_GPU), "room"),
                Q(worst(_OTHERS, BY_GPU), "others"),
                columns={
                    "gpu": Column("GPU", width=60),
                    "uuid": Column("UUID"),
                    "instance": Column("Server", width=160),
                    "total": Column("Memory", BYTES, width=115),
                    "used": Column("In use", RATIO, width=115),
                    "headroom": Column("Headroom", BYTES, limits.HEADROOM_BYTES, width=115),
                    "peak": Column("Largest step", BYTES, width=115),
                    "room": Column("Room", BYTES, limits.ROOM_AFTER_PEAK_BYTES, width=115),
                    "others": Column("Others", BYTES, width=115),
                },
                height=5,
                when_absent=_NO_GPU,
                worst_first="In use",
            ),
        ],
    )


_COMPONENTS = """
| part | is |
|---|---|
| weights, kv_pool | what the server took at its start |
| torch_live_other | activations and buffers in use |
| torch_pending, torch_cached | freed, not yet given back |
| non_torch | CUDA context, kernels, NCCL, graphs |
| other_processes | somebody else on your card |
| unattributed | nobody's: displays, hidden processes |
| server_process, unsplit | where it is not told apart |
| driver_reserved | firmware, page tables, ECC |
| free | anyone may take it, others too |
"""


def _modes() -> Row:
    return Row(
        300,
        "Three ways to run out: each looks alike from outside, and each has another remedy",
        [
            graph(
                301,
                "1  The KV pool is full",
                "Nothing crashes: requests wait, or are preempted and computed again. Remedy: more "
                "KV memory, fewer sequences at once, more replicas.",
                RATIO,
                Q(
                    worst(series("kvscope_kv_usage_ratio", basis="active"), BY_ENGINE),
                    ENGINE_LEGEND,
                ),
                high=1,
                steps=limits.POOL_USAGE,
                span=8,
                link=to_dashboard("KV pool", KV_POOL),
            ),
            graph(
                302,
                "2  The device is full",
                "headroom: the most that the next allocation can get. peak: the most that a step "
                "took so far. Headroom under peak: the next step as large fails, with an error in "
                "the log. Remedy: lower --gpu-memory-utilization; send others away.",
                BYTES,
                Q(f"min by ({BY_GPU}) ({_HEADROOM})", f"headroom, {GPU_LEGEND}"),
                Q(worst(_PEAK, BY_GPU), f"peak, {GPU_LEGEND}"),
                span=8,
                calcs=("lastNotNull", "min"),
                when_absent="Not known: no GPU, or a server that tells nothing of its allocator.",
            ),
            graph(
                303,
                "3  The host is full",
                "The control group with the least room. At the limit the kernel kills the process: "
                "no error, no log line, exit code 137. Remedy: a higher limit; less pinned memory; "
                "look for what grows.",
                BYTES,
                Q(worst(_host("unreclaimable"), BY_ENGINE), "in use, {{instance}}"),
                Q(worst(_host("usage"), BY_ENGINE), "with file cache, {{instance}}"),
                Q(worst(_host("limit"), BY_ENGINE), "limit, {{instance}}"),
                Q(worst(_host("resident"), BY_ENGINE), "this process, {{instance}}"),
                Q(worst(_host("pinned"), BY_ENGINE), "pinned, {{instance}}"),
                span=8,
                listed=True,
            ),
            graph(
                304,
                "Pool: full in",
                "If the last minute's trend goes on; gaps: not filling. Under a minute: send new "
                "work elsewhere now.",
                SECONDS,
                Q(
                    f"min by ({BY_ENGINE}) ({series('kvscope_kv_time_to_exhaustion_seconds')})",
                    ENGINE_LEGEND,
                ),
                steps=limits.TIME_TO_EXHAUSTION,
                calcs=("lastNotNull", "min"),
                span=8,
                height=6,
                when_absent="Not filling in this time range.",
            ),
            graph(
                305,
                "Device: near misses and errors",
                "retries: torch had to give back its cache first. refused: torch could not serve. "
                "steps: what the engine did about it, retried smaller or gave up. Any of them: "
                "lower --gpu-memory-utilization.",
                COUNT,
                Q(total(of_chosen(added(_RETRIES, GPU))), "retries"),
                Q(total(of_chosen(added("kvscope_gpu_torch_ooms_total", GPU))), "refused"),
                Q(total(added(_OOMS), "action"), "step {{action}}"),
                colours={
                    "retries": "orange",
                    "refused": "red",
                    "step retried": "purple",
                    "step gave_up": "dark-red",
                },
                span=8,
                height=6,
                listed=True,
            ),
            graph(
                306,
                "Host: share of the limit",
                "In use, without file cache, over limit. Steady growth under steady load is a "
                "leak: restart in a quiet hour, and report it.",
                RATIO,
                Q(_host_used(), ENGINE_LEGEND),
                high=1,
                steps=limits.HOST_USED_SHARE,
                span=8,
                height=6,
                when_absent="No limit is set.",
            ),
        ],
    )


_ADVICE = """
| it was | how you know | do |
|---|---|---|
| the pool | preemptions, *full in* at 0, no error in the log | more KV memory, lower \
`--max-num-seqs`, replicas |
| the device | `OutOfMemoryError` in the log, *step* in panel *near misses and errors* | lower \
`--gpu-memory-utilization` or `--max-num-batched-tokens` |
| another process | red grew in *Where did the memory go* | move it; a card is for one server |
| fragmentation | *not returnable* is large in torch's allocator | \
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` |
| the host | exit code 137, `dmesg` says *Out of memory* | raise the container's limit |
"""


def _advice() -> Row:
    return Row(700, "What to do?", [note(701, "Which one was it?", _ADVICE, height=8)])
