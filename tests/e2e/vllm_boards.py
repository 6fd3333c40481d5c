"""Queries of the panels of vLLM's five generated dashboards, in our own words: data for a test.

`vllm-overview`, `vllm-instances`, `vllm-kv-cache`, `vllm-spec-decode` and `vllm-status`, as of vLLM
0.33. One quantile or one grouping stands for others of its kind.
"""

from collections.abc import Iterator

from tests.e2e.vllm_forms import ENGINE, MODEL, RANGE, SERVER, WINDOW, Ask, Board, asks, over

NO_CONNECTOR = "no KV connector: nothing is loaded from another server or tier"
NO_OFFLOADING = "no offloading of cached blocks; what preemption swaps is kvscope_kv_swap_blocks"
NO_SPECULATION = "no speculative decoding"
NO_IMAGES = "no multimodal input"
NO_ADAPTERS = "no LoRA adapters"
NO_SLEEP = "no sleep mode and no weight updates: there are no such operations"
NO_ESTIMATES = "no analytic model of the work; vLLM shows it with --enable-mfu-metrics alone"

LATENCIES = ("time_to_first_token", "inter_token_latency", "e2e_request_latency")


def _overview() -> Iterator[Ask]:
    m, http = Board(MODEL), Board(SERVER)
    ended, running = "request_success_total", m.of("num_requests_running")
    requests = http.rate("http_requests_total")
    failed = http.rate("http_requests_total", status="5xx")
    by_handler = "http_request_duration_seconds"
    usage = m.of("kv_cache_usage_perc")
    ends = m.rate(ended, by="finished_reason")
    kept = f"last_over_time({running}[{RANGE}])"
    yield from asks(
        "vllm-overview",
        ("Requests / s", m.rate(ended), ""),
        ("Token throughput", m.rate("prompt_tokens_total", by="model_name"), ""),
        ("Token throughput", m.rate("generation_tokens_total", by="model_name"), ""),
        ("5xx ratio", f"({failed} or vector(0)) / ({requests} > 0)", ""),
        ("Unreachable", 'count(up{job=~".+"} == 0) or vector(0)', ""),
        ("Engines, Running", (f"count({running})", f"sum({running})"), ""),
        ("Waiting", f"sum({m.of('num_requests_waiting')})", ""),
        ("KV cache usage", tuple(f"{f}({usage})" for f in ("max", "avg", "min")), ""),
        ("Preemptions / s", m.rate("num_preemptions_total"), ""),
        (
            "TTFT SLO",
            over(
                m.rate("time_to_first_token_seconds_bucket", le="1.0"),
                m.rate("time_to_first_token_seconds_count"),
            ),
            "",
        ),
        (
            "TPOT SLO",
            over(
                m.rate("request_time_per_output_token_seconds_bucket", le="0.1"),
                m.rate("request_time_per_output_token_seconds_count"),
            ),
            "",
        ),
        (
            "Per-model summary",
            (
                f"count by (model_name) (group by (model_name, instance) ({kept}))",
                over(
                    f"({m.rate(ended, finished_reason='error', by='model_name', window=RANGE)})",
                    m.rate(ended, by="model_name", window=RANGE),
                ),
                f"max by (model_name) (max_over_time({usage}[{RANGE}]))",
                f"round(sum by (model_name) (increase({m.of('num_preemptions_total')}[{RANGE}])))",
                m.quantile(0.95, "time_to_first_token_seconds", "model_name", RANGE),
            ),
            "",
        ),
        *((name, m.levels(f"{name}_seconds"), "") for name in LATENCIES),
        ("TPOT", m.levels("request_time_per_output_token_seconds"), ""),
        ("Queue time", m.levels("request_queue_time_seconds"), ""),
        (
            "Mean time per phase",
            tuple(m.mean(f"request_{x}_time_seconds") for x in ("queue", "prefill", "decode")),
            "",
        ),
        ("Heatmaps", tuple(m.rate(f"{x}_seconds_bucket", by="le") for x in LATENCIES), ""),
        ("Finished by reason", ends, ""),
        (
            "Scheduler queue",
            tuple(
                f"sum({m.of('num_requests_waiting_by_reason', reason=reason)})"
                for reason in ("capacity", "deferred")
            ),
            "",
        ),
        (
            "Tokens per step",
            (m.quantile(0.5, "iteration_tokens_total"), m.mean("iteration_tokens_total")),
            "",
        ),
        *(
            (
                "Cache hit rates",
                over(m.rate(f"{cache}_hits_total"), m.rate(f"{cache}_queries_total")),
                why_not,
            )
            for cache, why_not in (
                ("prefix_cache", ""),
                ("external_prefix_cache", NO_CONNECTOR),
                ("mm_cache", NO_IMAGES),
            )
        ),
        *(
            (
                "Prompt tokens by source",
                m.rate("prompt_tokens_by_source_total", source=source),
                why_not,
            )
            for source, why_not in (
                ("local_compute", ""),
                ("local_cache_hit", ""),
                ("external_kv_transfer", ""),
            )
        ),
        *(
            (
                f"{name}: length, distribution",
                (
                    f"histogram_quantile(0.95, {m.shared_buckets(name, 'rate', WINDOW)})",
                    m.mean(name),
                    f"({m.shared_buckets(name, 'increase', RANGE)}) / on () group_left () "
                    f"(sum(increase({m.of(f'{name}_count')}[{RANGE}])) > 0)",
                ),
                "",
            )
            for name in ("request_prompt_tokens", "request_generation_tokens")
        ),
        (
            "Finish reason share",
            f"{ends} / ignoring (finished_reason) group_left () ({m.rate(ended)} > 0)",
            "",
        ),
        ("HTTP requests by status", http.rate("http_requests_total", by="status"), ""),
        ("HTTP requests by endpoint", http.rate("http_requests_total", by="handler"), ""),
        ("HTTP mean duration", http.mean(by_handler, by="handler"), ""),
    )


def _instances() -> Iterator[Ask]:
    e, server = Board(ENGINE), Board(SERVER)
    both, one = "instance, engine", "model_name, instance"
    running = e.of("num_requests_running")
    awake = e.of("engine_sleep_state", sleep_state="awake")
    discarded = e.of("engine_sleep_state", sleep_state="discard_all")
    yield from asks(
        "vllm-instances",
        (
            "Instances",
            (
                f"count by ({one}) ({running})",
                f"sum by ({one}) ({e.of('num_requests_waiting')})",
                f"max by ({one}) ({e.of('kv_cache_usage_perc')})",
                e.rate("num_preemptions_total", by=one, window="5m"),
                e.quantile(0.95, "inter_token_latency_seconds", one, "5m"),
                f"max by ({one}) ((time() - {server.of('process_start_time_seconds')}) * on (job, "
                "instance) group_left (model_name) group by (job, instance, model_name) "
                f"({running}))",
            ),
            "",
        ),
        ("Running", f"sum by ({both}) ({running})", ""),
        ("KV usage", f"max by ({both}) ({e.of('kv_cache_usage_perc')})", ""),
        ("Requests / s", e.rate("request_success_total", by="instance"), ""),
        ("Tokens / s", e.rate("prompt_tokens_total", by=both), ""),
        (
            "p95",
            tuple(e.quantile(0.95, f"{name}_seconds", "instance") for name in LATENCIES),
            "",
        ),
        ("Mean queue time", e.mean("request_queue_time_seconds", by="instance"), ""),
        ("Engine steps / s", e.rate("iteration_tokens_total_count", by=both), ""),
        ("Tokens per step", e.mean("iteration_tokens_total", by=both), ""),
        (
            "Waiting by reason",
            f"sum by ({both}, reason) ({e.of('num_requests_waiting_by_reason')})",
            "",
        ),
        (
            "Prefix hit rate",
            over(
                e.rate("prefix_cache_hits_total", by=both),
                e.rate("prefix_cache_queries_total", by=both),
            ),
            "",
        ),
        ("CPU", server.rate("process_cpu_seconds_total", by="instance"), ""),
        (
            "Resident memory, open files",
            (
                f"sum by (instance) ({server.of('process_resident_memory_bytes')})",
                f"sum by (instance) ({server.of('process_open_fds')}) / "
                f"sum by (instance) ({server.of('process_max_fds')})",
            ),
            "",
        ),
        ("Cache configuration", f'vllm:cache_config_info{{{SERVER},engine=~".+"}}', ""),
        (
            "LoRA adapters",
            f"topk by (job, instance) (1, {server.of('lora_requests_info')})",
            NO_ADAPTERS,
        ),
        (
            "Sleep state",
            f"(1 - max by ({both}) ({awake})) * (1 + max by ({both}) ({discarded}))",
            "",
        ),
        *(
            (
                "Sleep operations",
                f"sum by (operation) (last_over_time({server.of(f'{name}_count')}[{RANGE}]))",
                NO_SLEEP,
            )
            for name in (
                "sleep_mode_operation_duration_seconds",
                "rl_weight_update_operation_duration_seconds",
            )
        ),
        *(
            ("MFU", e.rate(f"estimated_{name}_per_gpu_total", by=both), NO_ESTIMATES)
            for name in ("flops", "read_bytes", "write_bytes")
        ),
    )


def _kv_cache() -> Iterator[Ask]:
    e = Board(ENGINE)
    cached = e.rate("prompt_tokens_cached_total")
    yield from asks(
        "vllm-kv-cache",
        ("Cached prompt tokens", over(cached, e.rate("prompt_tokens_total")), ""),
        (
            "Waiting for capacity",
            f"sum({e.of('num_requests_waiting_by_reason', reason='capacity')})",
            "",
        ),
        ("Preemptions", e.rate("num_preemptions_total", by="instance, engine"), ""),
        (
            "Cached tokens by tier",
            e.rate("prompt_tokens_cached_by_source_total", by="source"),
            "",
        ),
        (
            "Prompt and computed tokens",
            (e.mean("request_prompt_tokens"), e.mean("request_prefill_kv_computed_tokens")),
            "",
        ),
        *(
            ("Residency", e.levels(f"kv_block_{name}_seconds"), "")
            for name in ("lifetime", "idle_before_evict", "reuse_gap")
        ),
        (
            "Waiting on loads",
            f"sum by (stage) ({e.of('num_requests_kv_fetch_by_stage')})",
            NO_CONNECTOR,
        ),
        *(
            ("NIXL", e.levels(f"nixl_{name}"), NO_CONNECTOR)
            for name in (
                *("xfer_time_seconds", "post_time_seconds"),
                *("bytes_transferred", "num_descriptors"),
            )
        ),
        *(
            ("NIXL failures", e.rate(f"nixl_num_{name}_total"), NO_CONNECTOR)
            for name in (
                *("failed_transfers", "failed_notifications"),
                *("kv_expired_reqs", "notifications_after_expiry"),
            )
        ),
        *(
            ("Offloading", e.rate(f"kv_offload_{name}_total"), NO_OFFLOADING)
            for name in (
                *("load_bytes", "load_time", "store_bytes", "store_time"),
                *("allocation_failure", "stores_skipped"),
            )
        ),
        *(
            ("Offloading: sizes", e.mean(f"kv_offload_{name}_size"), NO_OFFLOADING)
            for name in ("load", "store")
        ),
        *(
            (
                "Offloading: lookups",
                e.quantile(0.99, f"kv_offload_lookup_{name}_delay_seconds"),
                NO_OFFLOADING,
            )
            for name in ("sync", "async")
        ),
        *(
            (
                "Offloading: CPU buffer",
                f"max({e.of(f'kv_offload_cpu_cache_{name}usage_perc')})",
                NO_OFFLOADING,
            )
            for name in ("", "read_", "write_")
        ),
        (
            "Simple offload",
            (
                e.rate("simple_kv_offload_save_outcomes_total", by="outcome"),
                e.rate("simple_kv_offload_load_blocks_total"),
                f"sum({e.of('simple_kv_offload_used_blocks')})",
                f"sum({e.of('simple_kv_offload_pending_store_blocks')})",
            ),
            NO_OFFLOADING,
        ),
    )


def _spec_decode() -> Iterator[Ask]:
    e = Board(ENGINE)
    drafts = e.rate("spec_decode_num_drafts_total")
    accepted = e.rate("spec_decode_num_accepted_tokens_total")
    per_position = e.rate("spec_decode_num_accepted_tokens_per_pos_total", by="position")
    yield from asks(
        "vllm-spec-decode",
        (
            "Acceptance",
            (
                over(accepted, e.rate("spec_decode_num_draft_tokens_total")),
                f"1 + {over(accepted, drafts)}",
                f"{per_position} / on () group_left () ({drafts} > 0)",
                over(accepted, e.rate("generation_tokens_total")),
            ),
            NO_SPECULATION,
        ),
        ("Inter-token latency", e.levels("inter_token_latency_seconds"), ""),
    )


def _status() -> Iterator[Ask]:
    m = Board(MODEL)
    running = m.of("num_requests_running")
    awake = m.of("engine_sleep_state", sleep_state="awake")
    ended = "request_success_total"
    failed = m.rate(ended, finished_reason="error", window="5m")
    speed = over(
        m.rate("generation_tokens_total", window="5m"), f"sum(avg_over_time({running}[5m]))"
    )
    tiles = (
        ("Response time", m.quantile(0.5, "time_to_first_token_seconds", window="5m")),
        ("Output speed", speed),
        ("Success rate", f"1 - ({over(failed, m.rate(ended, window='5m'))})"),
        ("Requests / min", f"60 * {m.rate(ended, window='5m')}"),
    )
    yield from asks(
        "vllm-status",
        ("Status", f"((2 - (max({awake}) == bool 0)) or vector(0)) == 2", ""),
        *((name, f"({expr}) and on () count({running})", "") for name, expr in tiles),
    )


ASKS = (*_overview(), *_instances(), *_kv_cache(), *_spec_decode(), *_status())
