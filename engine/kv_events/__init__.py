"""The content that the engine holds, published for routers in vLLM's protocol of KV events."""
