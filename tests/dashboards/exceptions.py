"""Metrics that are not shown, and panels that may be empty: data, each with its reason."""

NOT_SHOWN = {
    "kvscope_build_info": "a version, not a state; three runbooks ask it for a report",
    "kvscope_kv_tier_blocks": "`kvscope doctor` tells by it whether cached blocks are known",
    **{
        f"gen_ai_server_{name}_seconds": "by OTLP alone; the same observations are shown as ours"
        for name in ("request_duration", "time_per_output_token", "time_to_first_token")
    },
    "kvscope_otlp_spans_total": "only with traces; whoever receives them notices",
    "kvscope_otlp_exports_total": "only with --otlp-endpoint; whoever receives by OTLP notices",
    "kvscope_otlp_servers_left_out_total": "a bug, only with --otlp-endpoint; the log says why",
    "kvscope_generated_tokens_total": "`kvscope top` shows its rate where only a page is read",
    "kvscope_prefix_cache_resets_total": "the runbook of KvscopeFiguresWrong asks it",
    "kvscope_sequences": "`kvscope top` shows it where calls are not known",
    "kvscope_gpu_memory_free_bytes": "`kvscope top` shows it; panels have the component `free`",
    "kvscope_gpu_memory_used_bytes": "is OpenTelemetry's hw.gpu.memory.usage",
    "kvscope_gpu_energy_joules_total": "is OpenTelemetry's hw.energy",
    "kvscope_gpu_processes": "runbooks of processes that grew and of slow tokens ask it",
    **dict.fromkeys(
        [
            *("http_request_duration_seconds", "vllm:prompt_tokens_cached_by_source_total"),
            "vllm:request_prefill_kv_computed_tokens",
            "vllm:request_time_per_output_token_seconds",
        ],
        "vLLM's generated boards read it",
    ),
    "vllm:request_max_num_generation_tokens": "vLLM's published grafana.json reads it",
    **dict.fromkeys(
        ["vllm:cpu_cache_usage_perc", "vllm:num_requests_swapped"],
        "vLLM's published grafana.json read it until vLLM 0.8",
    ),
    **dict.fromkeys(
        [
            "kvscope_event_decode_errors_total",
            "kvscope_fleet_contradictions_total",
            "kvscope_fleet_sidecar_errors_total",
            "kvscope_page_errors_total",
            "kvscope_recording_gaps_total",
            "kvscope_recording_up",
            "kvscope_scrape_duration_seconds",
        ],
        "about kvscope itself: KvscopeFiguresWrong and the log say what is wrong",
    ),
    **{
        f"kvscope_gpu_{name}": "DCGM's own board shows it"
        for name in (
            *("mig_memory_bytes", "pcie_bytes_total", "power_limit_watts", "power_watts"),
            *("remapped_rows_total", "sample_age_seconds", "sample_duration_seconds"),
            "sm_clock_hertz",
        )
    },
    **{
        f"kvscope_{name}": "of a page with --detail full, for those who explore"
        for name in (
            *("front_end_requests", "front_end_tokenizer_waiting", "kv_allocation_failures_total"),
            *("kv_block_copies_total", "kv_deduplicated_blocks", "kv_shared_blocks"),
            *("kv_swap_blocks", "kv_tier_removed_blocks_total", "kv_tier_stored_blocks_total"),
            *("request_duration_seconds", "host_memory_pinned_bytes"),
            *("host_memory_resident_bytes", "host_memory_usage_bytes"),
        )
    },
    **{
        f"vllm:{name}": "vLLM's generated boards read it"
        for name in (
            *("engine_sleep_state", "kv_block_idle_before_evict_seconds"),
            *("kv_block_lifetime_seconds", "kv_block_reuse_gap_seconds"),
            *("num_requests_waiting_by_reason", "prompt_tokens_by_source_total"),
            "prompt_tokens_cached_total",
        )
    },
}
"""Families of the catalogue that no dashboard and no rule reads."""

Query = tuple[str, int, str]
"""Dashboard, panel, refId."""

ONLY_AFTER_A_FAULT: dict[Query, str] = {
    **dict.fromkeys([("kvscope-overview", 201, ref) for ref in "ABCD"], "an alert fires"),
    ("kvscope-memory", 604, "B"): "a call of NVML fails: its series begins with the first",
    ("kvscope-memory", 612, "A"): "an XID: its series begins with the first",
    ("kvscope-memory", 612, "B"): "an XID: its series begins with the first",
}
"""Empty in a healthy fleet; test_live provokes each fault and sees them filled."""

NOT_ON_THIS_MACHINE: dict[Query, str] = {
    **dict.fromkeys(
        [("kvscope-overview", 101, ref) for ref in "ABC"],
        "our rules, whose watchdog says that they are evaluated",
    ),
    ("kvscope-overview", 404, "C"): "a vLLM whose page is read",
    ("kvscope-prefix-cache", 301, "B"): "twice as much history as is on screen",
    **dict.fromkeys(
        [("kvscope-service-levels", 301, ref) for ref in "BCDE"],
        "hours of history; test_fleet evaluates them",
    ),
    **dict.fromkeys(
        [
            ("kvscope-memory", 101, "D"),
            *(("kvscope-memory", 201, ref) for ref in "MN"),
            ("kvscope-memory", 605, "D"),
        ],
        "a card that only DCGM's exporter reads; test_situations evaluates them",
    ),
    **dict.fromkeys(
        [("kvscope-memory", 201, ref) for ref in "GJ"],
        "a card whose parts cannot be told apart",
    ),
    **dict.fromkeys(
        [
            *(("kvscope-overview", 405, ref) for ref in "ABCDEFGHI"),
            ("kvscope-service-levels", 401, "A"),
            *(("kvscope-service-levels", 402, ref) for ref in "AB"),
            *(("kvscope-service-levels", 403, ref) for ref in "ABCD"),
        ],
        "the workers and the API server of an observed vLLM",
    ),
    **dict.fromkeys(
        [
            *(("kvscope-overview", 303, ref) for ref in "BD"),
            *(("kvscope-kv-pool", 601, ref) for ref in "BDF"),
            ("kvscope-kv-pool", 603, "B"),
            ("kvscope-service-levels", 402, "D"),
        ],
        "servers whose histograms have different bounds, where the line of all is empty in turn",
    ),
    **dict.fromkeys(
        [
            ("kvscope-kv-pool", 1004, "A"),
            ("kvscope-kv-pool", 1005, "A"),
        ],
        "a server with a tier below its pool",
    ),
    **dict.fromkeys(
        [
            ("kvscope-kv-pool", 1001, "A"),
            *(("kvscope-prefix-cache", panel, "A") for panel in (801, 802)),
            ("kvscope-prefix-cache", 801, "B"),
        ],
        "a model with layers of several kinds",
    ),
    **dict.fromkeys(
        [("kvscope-memory", 104, "A"), ("kvscope-memory", 303, "B")],
        "a limit of the control group",
    ),
    **dict.fromkeys(
        [
            ("kvscope-memory", 104, "B"),
            ("kvscope-memory", 303, "A"),
        ],
        "a control group with memory accounting",
    ),
    ("kvscope-vllm", 503, "B"): "vLLM 0.32 or newer",
}
"""Empty unless the machine, or the fleet, has it."""

COMES_AND_GOES: dict[Query, str] = {
    ("kvscope-kv-pool", 802, "A"): "the pool fills; absent while it does not",
    **dict.fromkeys(
        [
            *(("kvscope-kv-pool", 801, ref) for ref in "ABC"),
            ("kvscope-kv-pool", 102, "A"),
            ("kvscope-overview", 202, "H"),
        ],
        "half a minute of history, and something that runs",
    ),
    **dict.fromkeys(
        [("kvscope-prefix-cache", 103, "B"), ("kvscope-prefix-cache", 403, "A")],
        "something evicted was asked for again",
    ),
    **{
        (f"kvscope-{board}", panel, ref): "of these queries one has a value, by the verdict"
        for board, panel, refs in (
            *(("overview", 103, "BC"), ("overview", 104, "ABC"), ("overview", 105, "ABC")),
            *(("overview", 106, "ABC"), ("overview", 108, "ABC"), ("memory", 101, "ABC")),
            *(("kv-pool", 101, "ABC"), ("service-levels", 102, "CDE")),
            *(("service-levels", 104, "ABC"), ("service-levels", 105, "BC")),
            *(("vllm", 102, "AB"), ("vllm", 104, "ABC")),
            *(("vllm", 109, "ABC"), ("vllm", 111, "ABC")),
        )
        for ref in refs
    },
    ("kvscope-overview", 110, "A"): "something is wrong, and kvscope sees what began it",
    ("kvscope-overview", 502, "A"): "the adviser has something to propose",
    ("kvscope-overview", 502, "B"): "the adviser has something to propose",
}
"""Depends on the load at that moment; the metric's own test fills and empties the pool."""
MAY_BE_EMPTY: dict[Query, str] = {**ONLY_AFTER_A_FAULT, **NOT_ON_THIS_MACHINE, **COMES_AND_GOES}
