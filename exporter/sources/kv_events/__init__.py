"""KV events of other servers: what their caches store and lose, published over ZMQ."""

from exporter.sources.kv_events.source import KvEventsSource

__all__ = ["KvEventsSource"]
