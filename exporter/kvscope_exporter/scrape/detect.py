"""Kinds of servers whose pages are read: how to attach them, and by which names a page is known."""

import re
from collections.abc import Mapping, Sequence

from kvscope_events.vocabulary import ServerKind

TITLES: Mapping[ServerKind, str] = {
    "kvscope": "kvscope",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "ray": "Ray Serve LLM",
    "dynamo": "Dynamo",
    "llama.cpp": "llama.cpp",
}
"""Display names."""

HOW: Mapping[ServerKind, str] = {
    "vllm": "`kvscope sidecar --url http://HOST:8000`; vLLM without `--disable-log-stats`",
    "sglang": "`kvscope sidecar --url http://HOST:30000`; SGLang with `--enable-metrics`",
    "ray": "`ray start --metrics-export-port PORT`, and `kvscope sidecar --url http://NODE:PORT` "
    "for each node; Serve's own port has no metrics",
    "dynamo": "`--url` for each worker's page (`DYN_SYSTEM_PORT`) and for the frontend's",
    "llama.cpp": "`llama-server --metrics`, and `kvscope sidecar --url http://HOST:8080`",
}
"""Instructions by kind of server."""
KNOWN = ", ".join(TITLES[kind] for kind in HOW)
"""Display names of the servers whose pages are read."""

OWN_PAGE = "kvscope engine serve already exports these metrics"
OWN_PAGE_REMEDY = "let Prometheus scrape it, or write `events:`"
"""The reason why a kvscope's page is not read, and what to do."""

_SIGNS: tuple[tuple[str, ServerKind | None], ...] = (
    ("kvscope_", "kvscope"),  # serves vLLM's names as well
    ("vllm:current_qps", None),  # production-stack's router repeats what it has read elsewhere
    ("ray_", "ray"),
    ("dynamo_", "dynamo"),  # its page has its engine's names, and its simulated engine has vLLM's
    ("sglang:", "sglang"),
    ("sglang_", "sglang"),
    ("llamacpp:", "llama.cpp"),
    ("llamacpp_", "llama.cpp"),
    ("vllm:", "vllm"),
    ("vllm_", "vllm"),
    *(
        (name, "vllm")
        for name in ("num_requests_running", "gpu_cache_usage_perc", "num_request_max")
    ),
)
"""Prefixes of names, the most specific first."""
_SIGN = re.compile(f"^(?:{'|'.join(re.escape(sign) for sign, _ in _SIGNS)})", re.MULTILINE)


_DECLARED = re.compile(
    f"^# (?:HELP|TYPE) (?P<sign>{'|'.join(re.escape(sign) for sign, _ in _SIGNS)})", re.MULTILINE
)
_NO_SAMPLES: Mapping[ServerKind, str] = {
    "vllm": "is that of a vLLM without samples: it was started with --disable-log-stats, or "
    "another program serves its page",
    "sglang": "is that of an SGLang without samples: it was started without --enable-metrics, or "
    "another program serves its page",
}
_PASSED_ON = re.compile(r"^ray_\w*(?:vllm|sglang)", re.MULTILINE)


def why_unread(page: str, problems: Sequence[str], server: ServerKind | None = None) -> str:
    """The reason that a page of metrics gives no value of any family; a phrase about it.

    problems: values of the page that cannot be used. server: known otherwise than by its page.
    """
    if problems:
        return f"gives no value that can be used: {problems[0]}"
    found = detect(page)
    if found is not None:
        return f"has no family of {TITLES[found]} that kvscope reads"
    kind = _declared(page) or server
    if kind is None:
        return f"has no metric names of a server that kvscope reads ({KNOWN})"
    return _NO_SAMPLES.get(kind, f"has the families of {TITLES[kind]} without a sample")


def may_be_idle(kind: ServerKind | None, page: str) -> bool:
    """Whether a page of this kind is empty because its engines have had no request."""
    return kind == "ray" and _PASSED_ON.search(page) is None


def is_declared(page: str) -> bool:
    """Whether it describes families of a server that kvscope reads, perhaps without samples."""
    return _declared(page) is not None


def _declared(page: str) -> ServerKind | None:
    """The kind of server whose families are described on the page."""
    found = {match["sign"] for match in _DECLARED.finditer(page)}
    return next((kind for sign, kind in _SIGNS if sign in found), None)


def detect(page: str) -> ServerKind | None:
    """The kind of server; None if no names match, or they are only quoted."""
    found = {match[0] for match in _SIGN.finditer(page)}  # not all names: there may be millions
    return next((kind for sign, kind in _SIGNS if sign in found), None)
