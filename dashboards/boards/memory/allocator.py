"""Memory: what does torch's allocator do?"""

from dashboards.kit.frame import Row
from dashboards.kit.panels import BYTES, Q, graph
from dashboards.kit.queries import BY_GPU, GPU_LEGEND, gpu, gpu_room, worst

_HEADROOM = gpu("kvscope_gpu_memory_headroom_bytes")
_PEAK = gpu("kvscope_gpu_activation_peak_bytes")
_NO_TORCH = "No server publishes the figures of a torch allocator on a GPU."


def _gpu(name: str, **labels: str) -> str:
    return gpu(f"kvscope_gpu_{name}", **labels)


_FIGURES = (
    *("reserved", "active", "allocated", "requested", "inactive_split"),
    *("reserved_peak", "allocated_peak"),
)


def _tightest(expr: str, name: str) -> Q:
    """Limited to the three cards with the least room: two lines for each can still be
    distinguished.
    """
    room = f"min_over_time((min by ({BY_GPU}) ({gpu_room()}))[$__range:$__interval] @ end())"
    return Q(f"{expr} and on ({BY_GPU}) bottomk(3, {room})", f"{name}, {GPU_LEGEND}")


def row() -> Row:
    return Row(
        500,
        "How close is the next step to failing?",
        [
            graph(
                501,
                "The device is full: headroom and largest step",
                "headroom: the most that the next allocation can get. peak: the most that a step "
                "has taken so far. Headroom below peak: the next step of that size fails, with an "
                "error in the log. Remedy: lower --gpu-memory-utilization; move other processes "
                "away.",
                BYTES,
                _tightest(f"min by ({BY_GPU}) ({_HEADROOM})", "headroom"),
                _tightest(worst(_PEAK, BY_GPU), "peak"),
                span=24,
                calcs=("lastNotNull", "min"),
                when_absent="Unknown: no GPU, or a server without allocator metrics.",
                height=8,
            ),
        ],
    )
