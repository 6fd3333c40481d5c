"""A server's names for the quantities in the rules, and the labels that distinguish its series.

A scheduler family has one series per engine in vLLM, in SGLang one per rank, and ranks repeat each
other. Labels that Prometheus attaches (cluster, namespace, pod) are kept throughout.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Names of one kind of server."""

    title: str
    prefix: str
    """Prefix of its alerts."""
    word: str
    """Prefix of its files, recorded series and scrape job."""
    ranks: tuple[str, ...]
    """Labels of series that repeat each other."""
    engine: str
    """The label that distinguishes the engines of a server; not on families of the front end."""
    of_engine: str
    """Template: the engine, in descriptions, after the server."""

    running: str
    waiting: str
    usage: str
    preempted: str
    """Counter of preemptions."""
    preemptions: str
    """The server's word for them."""
    tokens: tuple[str, ...]
    """Counters of the scheduler, at least one of which moves while it works."""
    tokens_by: str
    """A label of those counters that is summed over."""
    ended: str
    ended_by: str
    first_token: str
    first_token_by: str
    gap: str
    written: str
    """Counter of generated tokens that moves with every step."""
    written_only: tuple[str, ...]
    """Matchers of those tokens."""
    hits: str
    hits_by: str
    queries: str
    queries_by: str
    http: str
    http_failed: str
    """Matchers of error responses that are the server's fault."""
    http_by: tuple[str, ...]

    def each(self, expr: str) -> str:
        """One series for each engine, of a family of the scheduler."""
        return f"max without ({', '.join(self.ranks)}) ({expr})" if self.ranks else expr

    def whole(self, expr: str) -> str:
        """One series for each server and model, of a family of the scheduler."""
        return f"sum without ({self.engine}) ({self.each(expr)})"

    @property
    def same(self) -> str:
        """Vector matching of an engine's series with the front end's, which may not know the
        engine."""
        return f"ignoring ({self.engine}) " if self.ranks else ""

    def per_server(self, label: str, expr: str) -> str:
        """One series for each server and model, of a family of the front end."""
        return f"sum without ({', '.join(filter(None, (self.engine, label)))}) ({expr})"


def summed(label: str, expr: str) -> str:
    """Sum over the values of a label; without one, the expression as it is."""
    return f"sum without ({label}) ({expr})" if label else expr


VLLM = Server(
    title="vLLM",
    prefix="Vllm",
    word="vllm",
    ranks=(),
    engine="engine",
    of_engine="{{ with $labels.engine }} (engine {{ . }}){{ end }}",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    usage="vllm:kv_cache_usage_perc",
    preempted="vllm:num_preemptions_total",
    preemptions="preemptions",
    tokens=("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    tokens_by="",
    ended="vllm:request_success_total",
    ended_by="finished_reason",
    first_token="vllm:time_to_first_token_seconds",
    first_token_by="",
    gap="vllm:inter_token_latency_seconds",
    written="vllm:generation_tokens_total",
    written_only=(),
    hits="vllm:prefix_cache_hits_total",
    hits_by="",
    queries="vllm:prefix_cache_queries_total",
    queries_by="",
    http="http_requests_total",
    http_failed='status="5xx"',
    http_by=("handler", "method", "status"),
)

SGLANG = Server(
    title="SGLang",
    prefix="Sglang",
    word="sglang",
    ranks=("moe_ep_rank", "pid", "pp_rank", "tp_rank"),
    engine="dp_rank",
    of_engine="{{ with $labels.dp_rank }} (rank {{ . }}){{ end }}",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    usage="sglang:token_usage",
    preempted="sglang:num_retracted_requests_total",
    preemptions="retractions",
    tokens=("sglang:realtime_tokens_total",),
    tokens_by="mode",
    ended="sglang:num_requests_total",
    ended_by="is_streaming",
    first_token="sglang:time_to_first_token_seconds",
    first_token_by="is_streaming",
    gap="sglang:inter_token_latency_seconds",
    written="sglang:realtime_tokens_total",
    written_only=('mode="decode"',),
    hits="sglang:cached_tokens_total",
    hits_by="cache_source",
    queries="sglang:prompt_tokens_total",
    queries_by="is_streaming",
    http="sglang:http_responses_total",
    http_failed='status_code=~"5.."',
    http_by=("endpoint", "method", "status_code"),
)

SERVERS = (VLLM, SGLANG)
