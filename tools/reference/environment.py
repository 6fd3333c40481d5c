"""The reference of all environment variables: those of the options, and those declared here."""

import re
from pathlib import Path

from tools.reference.commands import anchor_of, options_by_variable

ROOT = Path(__file__).resolve().parents[2]

# Variables that the product reads besides its options. A test compares this with the sources.
_OBSERVER = {
    "KVSCOPE_OBSERVER": "`off`, `0`, `false` or `no` when a server starts: its observer is off.",
    "KVSCOPE_OBSERVER_DIR": "Folder of the observer's sockets. Default: `$KVSCOPE_RUN_DIR/vllm` or "
    "`/sglang`.",
    "KVSCOPE_OBSERVER_NAMES": "`on` or `off`: whether an SGLang's pages are named. Default: on for "
    "pages of 16 tokens or more.",
    "KVSCOPE_OBSERVER_TENANT": "Where requests to an observed vLLM name their tenant: `user` for "
    "that field of their body, else a header such as `authorization` or `x-user`; only its hash is "
    "kept. Default: nowhere.",
    "KVSCOPE_TENANT_SECRET": "Key of the hashes of tenants, of at least 16 characters, for "
    "`kvscope engine serve` and observed servers; the same for all of a fleet. Default: random at "
    "each start.",
    "VLLM_PLUGINS": "vLLM's list of plugins to load. `kvscope run` appends `kvscope` if it is set.",
    "PYTHONPATH": "`kvscope run` puts the observer's folder in front of it, for its command alone.",
}
_ALL = {
    "KVSCOPE_RUN_DIR": "The run directory, which holds the sockets. Default: "
    "`$XDG_RUNTIME_DIR/kvscope`, else `/tmp/kvscope-UID`, or where "
    "another user has that, the next of a fixed list.",
    "KVSCOPE_TOKEN": "Bearer token that commands send to the servers that they ask; `--token-file` "
    "wins.",
    "XDG_RUNTIME_DIR": "See `KVSCOPE_RUN_DIR`.",
    "CUDA_VISIBLE_DEVICES": "GPUs to watch, unless `--gpu-devices all`; read by CUDA's rules "
    "([which](engine.md#gpus-that-are-watched)).",
    "CUDA_DEVICE_ORDER": "`PCI_BUS_ID`: numbers in `CUDA_VISIBLE_DEVICES` follow the bus.",
    "OMP_NUM_THREADS": "Threads for computing on a CPU. Default: chosen by the engine.",
    "CC": "C compiler for the kernels that the engine builds. Default: `gcc`, else `clang`.",
}
_TELEMETRY = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Sends metrics and traces to this endpoint.",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "The whole URL for metrics.",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "The whole URL for traces.",
    "OTEL_METRICS_EXPORTER": "Without `otlp` in it (`none`), variables do not switch metrics on.",
    "OTEL_TRACES_EXPORTER": "The same for traces.",
    "OTEL_METRIC_EXPORT_INTERVAL": "Milliseconds between two exports of metrics.",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "Seconds for one export; also `_METRICS_` and `_TRACES_`.",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "`http/protobuf` only; also `_METRICS_` and `_TRACES_`.",
    "OTEL_EXPORTER_OTLP_HEADERS": "Headers of an export; also `_METRICS_` and `_TRACES_`.",
    "OTEL_TRACES_SAMPLER": "Which traces are sent.",
    "OTEL_TRACES_SAMPLER_ARG": "The sampler's ratio, 0 to 1.",
    "OTEL_BSP_SCHEDULE_DELAY": "Milliseconds that a span waits for others.",
    "OTEL_BSP_MAX_QUEUE_SIZE": "Spans that may wait; more are dropped and counted.",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "Spans in one export.",
    "OTEL_SERVICE_NAME": "The service's name in what is sent.",
    "OTEL_RESOURCE_ATTRIBUTES": "Further attributes of what is sent.",
    "OTEL_SDK_DISABLED": "`true`: nothing is sent.",
}
DECLARED = {**_OBSERVER, **_ALL, **_TELEMETRY}
_SETTING = re.compile(r"^(?:# )?([A-Z_]+)=(.*)$")


def environment_page() -> str:
    return f"""\
# Environment

Written by `make docs`. A flag wins over its variable; an empty variable counts as absent.

## Options

Every option of a command that serves has a variable, which has the command's words in it: `--port`
of `kvscope engine serve` is `KVSCOPE_ENGINE_SERVE_PORT`. Options of
other commands have none, but for a secret. A variable without the command's name, such as
`KVSCOPE_PORT`, is not read: the command says so at its start.

A Service of Kubernetes called `kvscope-sidecar` sets `KVSCOPE_SIDECAR_PORT` in every pod of its
namespace, and one called `kvscope-fleet` sets `KVSCOPE_FLEET_PORT`: give `--port` there, or set
`enableServiceLinks: false` in the pod, as our manifests do.

| variable | option | command |
|---|---|---|
{_of_options()}
## An observed vLLM

{_table(_OBSERVER)}
## All commands

{_table(_ALL)}
## OpenTelemetry

[OpenTelemetry](../operate/opentelemetry.md) has defaults and limits.

{_table(_TELEMETRY)}
## The stack

Docker Compose reads them from the environment or from `.env`;
[.env.example](../../.env.example) has these defaults and says what each is for.

| variable | default |
|---|---|
{_of_the_stack()}"""


def _of_options() -> str:
    return "".join(
        f"| `{variable}` | `{flag}` | [`{command}`](commands.md#{anchor_of(command)}) |\n"
        for variable, (flag, command) in sorted(options_by_variable().items())
    )


def _table(variables: dict[str, str]) -> str:
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in variables.items())
    return f"| variable | meaning |\n|---|---|\n{rows}"


def _of_the_stack() -> str:
    found = map(_SETTING.match, (ROOT / ".env.example").read_text().splitlines())
    rows = [(match[1], f"`{match[2]}`" if match[2] else "") for match in found if match]
    return "".join(f"| `{name}` | {value} |\n" for name, value in rows)
