"""Instructions for operators: how to let each kind of server's page be read; see servers.md."""

from collections.abc import Mapping

from kvscope_events.vocabulary import ServerKind

TITLES: Mapping[ServerKind, str] = {
    "kvscope": "kvscope",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tgi": "TGI",
    "ray": "Ray Serve LLM",
    "tensorrt-llm": "TensorRT-LLM",
    "dynamo": "Dynamo",
    "lmcache": "LMCache",
    "llama.cpp": "llama.cpp",
}
"""Display names."""

HOW: Mapping[ServerKind, str] = {
    "vllm": "`kvscope sidecar --url http://HOST:8000`; vLLM without `--disable-log-stats`",
    "sglang": "`kvscope sidecar --url http://HOST:30000`; SGLang with `--enable-metrics`",
    "tgi": "`kvscope sidecar --url http://HOST:PORT`",
    "ray": "`ray start --metrics-export-port PORT`, and `kvscope sidecar --url http://NODE:PORT` "
    "for each node; Serve's own port has no metrics",
    "tensorrt-llm": "`trtllm-serve` with `return_perf_metrics: true` and `enable_iter_perf_stats: "
    "true`, whose page is `/prometheus/metrics`; for the Triton backend `--url http://HOST:8002`",
    "dynamo": "`--url` for each worker's page (`DYN_SYSTEM_PORT`) and for the frontend's",
    "lmcache": "in its engine's process: the engine's page; as a server of its own: that server's",
    "llama.cpp": "`llama-server --metrics`, and `kvscope sidecar --url http://HOST:8080`",
}
"""Instructions by kind of server."""
