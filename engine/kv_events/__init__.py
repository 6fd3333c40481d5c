"""The engine's content, published for routers in vLLM's KV event protocol."""
