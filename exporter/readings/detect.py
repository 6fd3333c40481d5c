"""Detects the kind of server of a page by the names of its families."""

import re

from kvscope_events.vocabulary import ServerKind

OWN_PAGE = "kvscope serve already exports these metrics"
OWN_PAGE_REMEDY = "let Prometheus scrape it, or write `events:`"
"""The reason why a kvscope's page is not read, and what to do."""

_SIGNS: tuple[tuple[str, ServerKind | None], ...] = (
    ("kvscope_", "kvscope"),  # serves vLLM's names as well
    ("vllm:current_qps", None),  # production-stack's router repeats what it has read elsewhere
    ("ray_", "ray"),
    ("dynamo_", "dynamo"),  # its page has its engine's names, and its simulated engine has vLLM's
    ("sglang:", "sglang"),
    ("sglang_", "sglang"),
    ("tgi_", "tgi"),
    ("trtllm_", "tensorrt-llm"),
    ("trtllm:", "tensorrt-llm"),
    ("nv_trt_llm_", "tensorrt-llm"),
    ("llamacpp:", "llama.cpp"),
    ("llamacpp_", "llama.cpp"),
    ("vllm:", "vllm"),
    ("vllm_", "vllm"),
    ("lmcache_mp_", "lmcache"),
    ("lmcache:", "lmcache"),
)
"""Prefixes of names, the most specific first."""
_SIGN = re.compile(f"^(?:{'|'.join(re.escape(sign) for sign, _ in _SIGNS)})", re.MULTILINE)


def detect(page: str) -> ServerKind | None:
    """The kind of server; None if no names match, or they are only quoted."""
    found = {match[0] for match in _SIGN.finditer(page)}  # not all names: there may be millions
    return next((kind for sign, kind in _SIGNS if sign in found), None)
