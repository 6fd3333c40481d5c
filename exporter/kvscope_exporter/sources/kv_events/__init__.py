"""KV events of other servers: stored and removed content of their caches, published over ZMQ."""

from kvscope_exporter.sources.kv_events.source import KvEventsSource

__all__ = ["KvEventsSource"]
