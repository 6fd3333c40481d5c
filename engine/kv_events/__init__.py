"""Which content the engine holds, told in vLLM's protocol of KV events for routers."""
