"""The watched server as a whole: one page is one server."""

from typing import Literal, get_args

from kvscope_events.vocabulary import StartPhase
from kvscope_exporter.catalogue.metric import ENGINE, Metric

ServerState = Literal["expected", "loading", "ready", "gone"]
SERVER_STATES: tuple[ServerState, ...] = get_args(ServerState)

SERVER = (
    Metric(
        name="kvscope_server_state",
        kind="gauge",
        help="State of the watched server; exactly one series is 1.",
        notes="expected: it has not reported yet. loading: a part is not ready. gone: it has "
        "stopped reporting.",
        unit="",
        group="server",
        labels={"state": SERVER_STATES},
        otel_name="kvscope.server.state",
    ),
    Metric(
        name="kvscope_server_start_time_seconds",
        kind="gauge",
        help="Unix time at which the watched server's process started, by its own metrics.",
        unit="seconds",
        group="server",
        otel_name="kvscope.server.start_time",
        aliases=("process_start_time_seconds",),
    ),
    Metric(
        name="kvscope_start_phase_seconds",
        kind="gauge",
        help="Time that a worker took for each part of its start; the last one may go on.",
        notes="import: from the start of the server's first process. device: connections between "
        "ranks as well. weights: loading. profile: what a step needs is measured, by vLLM alone. "
        "warm_up: compiling, graphs, first steps. Known after the import.",
        unit="seconds",
        group="server",
        detail="full",
        labels={**ENGINE, "worker": None, "phase": get_args(StartPhase)},
        otel_name="kvscope.start.phase",
        servers=("vllm", "sglang"),
        events=("StartProgressed",),
    ),
    Metric(
        name="kvscope_start_weights_file_bytes",
        kind="gauge",
        help="Size of the checkpoint's files that a worker of the server reads at its start.",
        notes="A drafter's are added when it is loaded. Absent with other loaders than the "
        "server's default one.",
        unit="bytes",
        group="server",
        detail="full",
        labels={**ENGINE, "worker": None},
        otel_name="kvscope.start.weights_file",
        servers=("vllm", "sglang"),
        events=("StartProgressed",),
    ),
    Metric(
        name="kvscope_start_weights_read_bytes",
        kind="gauge",
        help="Bytes of these files that the worker has read so far.",
        notes="Files have headers, and some have tensors that a model leaves out.",
        unit="bytes",
        group="server",
        detail="full",
        labels={**ENGINE, "worker": None},
        otel_name="kvscope.start.weights_read",
        servers=("vllm", "sglang"),
        events=("StartProgressed",),
    ),
)
