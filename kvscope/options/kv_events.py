"""`--kv-events-config`: the engine's events in vLLM's protocol, for routers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.output import fail

if TYPE_CHECKING:
    from engine.content_listener import ContentListener
    from engine.kv_events.settings import KvEventsConfig

KvEventsOption = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="Publish which blocks can be found, in vLLM's protocol, for routers: "
        '\'{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557", "replay_endpoint": '
        '"tcp://*:5558"}\'. They hold the tokens of all prompts and answers.',
    ),
]

logger = logging.getLogger("kvscope")


def chosen_kv_events(text: str | None, *, prefix_caching: bool) -> "KvEventsConfig | None":
    """The option's settings; None: no events. Raises ValueError."""
    if text is None:
        return None
    from engine.kv_events.settings import parse_kv_events_config

    config = parse_kv_events_config(text)
    if not config.is_on:
        logger.info("--kv-events-config: without enable_kv_cache_events nothing is published")
        return None
    if not prefix_caching:
        raise ValueError(
            "--kv-events-config has nothing to publish with --no-enable-prefix-caching: drop one"
        )
    return config


@contextmanager
def kv_events_published(config: "KvEventsConfig | None") -> "Iterator[ContentListener | None]":
    """Inside the block, publishes whatever the listener receives. Raises typer.Exit(2)."""
    if config is None:
        yield None
        return
    from engine.kv_events.publisher import KvEventPublisher
    from kvscope_events.wire.endpoint import EndpointError

    try:
        publisher = KvEventPublisher(config)
    except EndpointError as error:
        raise fail(f"--kv-events-config: {error}") from None
    publisher.start()
    replay = publisher.replay_address or "none, so that a missed message is lost"
    if config.binds:
        logger.info("KV events: at %s; replay: %s", publisher.address, replay)
    else:
        logger.warning(
            "KV events: connecting to %s, as vLLM does where the endpoint has no `*`: a reader has "
            'to listen there. To listen here, add "bind": true to --kv-events-config; replay: %s',
            publisher.address,
            replay,
        )
    for address in config.remote_addresses:
        logger.warning(
            "KV events at %s hold the tokens of all prompts and answers, neither encrypted nor "
            "authenticated: keep the address private",
            address,
        )
    try:
        yield publisher
    finally:
        publisher.stop()
