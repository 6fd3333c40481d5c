"""Panels that our dashboards cannot fill for a vLLM with our observer in it: data, each with its
reason."""

from tests.dashboards.exceptions import Query

_MEMORY, _OVERVIEW = "kvscope-memory", "kvscope-overview"

NOT_OF_VLLM: dict[Query, str] = {
    (_OVERVIEW, 404, "B"): "vLLM refuses in its HTTP server, which the observer does not see",
    **dict.fromkeys(
        [*((_MEMORY, 102, ref) for ref in "AB"), (_MEMORY, 305, "C")],
        "vLLM does not repeat a step that runs out of memory: its engine ends",
    ),
    (_MEMORY, 401, "C"): "a pool whose size was not configured",
    **dict.fromkeys(
        [
            *((_MEMORY, 101, ref) for ref in "AE"),
            *((_MEMORY, panel, "A") for panel in (103, 305, 501)),
            *((_MEMORY, panel, "B") for panel in (305, 501)),
            *((_MEMORY, 201, ref) for ref in "ABCDEF"),
            *((_MEMORY, 203, ref) for ref in "CDE"),
            *((_MEMORY, 301, ref) for ref in "ABCDEFG"),
        ],
        "a vLLM on CUDA, whose torch has memory on the card",
    ),
}
"""Empty over an observed vLLM under load, on a CPU."""
