"""`kvscope engine serve`: the engine and its exporter in one process."""

from dataclasses import replace

import typer

from kvscope.options.generated import with_options
from kvscope.options.listen import ListenConfig
from kvscope.options.model import Checkpoint, chosen_model
from kvscope.options.telemetry import TelemetryConfig
from kvscope.output import configure_logging, fail
from kvscope.serving.stacks import show_stacks
from kvscope_engine.config import EngineConfig

_DEFAULT = EngineConfig()
_LISTEN = ListenConfig()
_TELEMETRY = TelemetryConfig()


@with_options
def serve(
    context: typer.Context,
    checkpoint: Checkpoint = None,
    config: EngineConfig = _DEFAULT,
    listen: ListenConfig = _LISTEN,
    observe: TelemetryConfig = _TELEMETRY,
) -> None:
    """Serve a model over OpenAI's API, and report its KV cache.

    /metrics and /health answer from the start, /v1 once the model is loaded.

    Example: kvscope engine serve --model ./Qwen3-0.6B --port 8000
    """
    from kvscope.serving.engine import require_engine, run_engine

    configure_logging()
    show_stacks()
    require_engine()
    try:
        name = chosen_model(context, checkpoint, config.model.model) or config.model.model
        config = replace(config, model=replace(config.model, model=name))
    except ValueError as error:
        raise fail(error) from None
    if not observe.serves_page and listen.metrics_port is not None:
        reason = observe.option_without_page
        raise fail(f"--metrics-port has nothing to serve with {reason}: drop one")
    run_engine(config, listen, observe)
