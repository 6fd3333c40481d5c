"""Panels that our dashboards cannot fill for a vLLM with our observer in it: data, each with its
reason."""

from tests.dashboards.exceptions import Query

_MEMORY, _POOL, _OVERVIEW = "kvscope-memory", "kvscope-kv-pool", "kvscope-overview"

NOT_OF_VLLM: dict[Query, str] = {
    (_POOL, 1003, "A"): "vLLM shares whole blocks alone, and never copies one before a write",
    **dict.fromkeys(
        [(_POOL, 605, "A"), (_OVERVIEW, 404, "B")],
        "vLLM refuses in its HTTP server, which the observer does not see",
    ),
    **dict.fromkeys(
        [*((_MEMORY, 103, ref) for ref in "AB"), (_MEMORY, 305, "C")],
        "vLLM does not repeat a step that runs out of memory: its engine ends",
    ),
    (_MEMORY, 401, "C"): "a pool whose size was not configured",
    **dict.fromkeys(
        [
            *((_OVERVIEW, panel, "A") for panel in (108, 406)),
            *((_MEMORY, panel, "A") for panel in (101, 102, 104, 302, 305, 502)),
            *((_MEMORY, panel, "B") for panel in (302, 305)),
            *((_MEMORY, 201, ref) for ref in "ABCDEF"),
            *((_MEMORY, 203, ref) for ref in "CDE"),
            *((_MEMORY, 501, ref) for ref in "ABCDEFG"),
        ],
        "a vLLM on CUDA, whose torch has memory on the card",
    ),
}
"""Empty over an observed vLLM under load, on a CPU."""
