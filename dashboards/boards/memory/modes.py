"""Memory: three ways to run out, side by side."""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import BYTES, COUNT, RATIO, Q, graph
from dashboards.kit.queries import (
    BY_ENGINE,
    BY_GPU,
    ENGINE,
    GPU,
    GPU_LEGEND,
    added,
    gpu,
    gpu_room,
    of_chosen,
    series,
    total,
    worst,
)
from kvscope_monitoring import formulas

_HEADROOM = gpu("kvscope_gpu_memory_headroom_bytes")
_PEAK = gpu("kvscope_gpu_activation_peak_bytes")
_RETRIES = "kvscope_gpu_torch_alloc_retries_total"
_OOMS = "kvscope_engine_oom_events_total"


_FULLEST_HOST = (
    f"topk(3, max_over_time(({worst(series('kvscope_host_memory_unreclaimable_bytes'), BY_ENGINE)})"
    "[$__range:$__interval] @ end()))"
)


def _host(figure: str) -> str:
    return worst(series(f"kvscope_host_memory_{figure}_bytes"), BY_ENGINE)


def _tightest(expr: str, name: str) -> Q:
    """Limited to the three cards with the least room: two lines for each can still be
    distinguished.
    """
    room = f"min_over_time((min by ({BY_GPU}) ({gpu_room()}))[$__range:$__interval] @ end())"
    return Q(f"{expr} and on ({BY_GPU}) bottomk(3, {room})", f"{name}, {GPU_LEGEND}")


def row() -> Row:
    return Row(
        300,
        "Three ways to run out: alike from outside, each with its own remedy",
        [
            graph(
                304,
                "1  The KV pool is full: exhausted in 1 min",
                "Probability that within a minute a running request finds no block, by engine. "
                "Nothing crashes then: requests wait, or are preempted and recomputed. Remedy: "
                "more KV memory, fewer sequences at once, more replicas. The KV pool dashboard has "
                "the pool itself, and the shorter horizons.",
                RATIO,
                *outstanding(
                    worst(
                        series("kvscope_kv_exhaustion_probability", horizon_seconds="60"),
                        BY_ENGINE,
                    ),
                ),
                high=1,
                steps=limits.EXHAUSTION_PROBABILITY,
                span=8,
                when_absent="Unknown until half a minute of work has been seen.",
                link=to_dashboard("KV pool", KV_POOL),
            ),
            graph(
                302,
                "2  The device is full",
                "headroom: the most that the next allocation can get. peak: the most that a step "
                "has taken so far. Headroom below peak: the next step of that size fails, with an "
                "error in the log. Remedy: lower --gpu-memory-utilization; move other processes "
                "away.",
                BYTES,
                _tightest(f"min by ({BY_GPU}) ({_HEADROOM})", "headroom"),
                _tightest(worst(_PEAK, BY_GPU), "peak"),
                span=8,
                calcs=("lastNotNull", "min"),
                when_absent="Unknown: no GPU, or a server without allocator metrics.",
            ),
            graph(
                303,
                "3  The host is full",
                "Memory of the control group, of the three servers that use most. At the limit "
                "the kernel kills the process: no error, no log line, exit code 137. Remedy: a "
                "higher limit; less pinned memory; look for what grows.",
                BYTES,
                *(
                    Q(f"{_host(figure)} and on ({BY_ENGINE}) ({_FULLEST_HOST})", name)
                    for figure, name in {
                        "unreclaimable": "in use, {{instance}}",
                        "usage": "with file cache, {{instance}}",
                        "limit": "limit, {{instance}}",
                        "resident": "this process, {{instance}}",
                        "pinned": "pinned, {{instance}}",
                    }.items()
                ),
                span=8,
                listed=True,
            ),
            graph(
                305,
                "Device: near misses and errors",
                "retries: torch had to give back its cache first. refused: torch could not serve. "
                "steps: how the engine reacted, by retrying a smaller step or failing it. Any of "
                "them: lower --gpu-memory-utilization.",
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
                when_absent="Not reported by these servers.",
                span=16,
                height=6,
                listed=True,
            ),
            graph(
                306,
                "Host: used share",
                "Memory in use, without file cache, over the limit. Steady growth under steady "
                "load is a leak: restart in a quiet hour, and report it.",
                RATIO,
                *outstanding(worst(formulas.host_used_share(ENGINE), BY_ENGINE)),
                high=1,
                steps=limits.HOST_USED_SHARE,
                span=8,
                height=6,
                when_absent="Its control group has no limit.",
            ),
        ],
    )
