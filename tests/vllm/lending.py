"""A connector that has the first blocks of every prompt, as another vLLM's cache would; for vLLM.

Nothing is copied: what a block then holds makes no difference to what is counted.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)

LENT_TOKENS = 96
"""Tokens of each prompt: three blocks."""


class LendingConnector(KVConnectorBase_V1):
    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        whole_blocks = (request.num_tokens - 1) // 32 * 32
        return max(0, min(LENT_TOKENS, whole_blocks) - num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        return

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context: Any, **further: Any) -> None:
        return

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **further: Any
    ) -> None:
        return

    def wait_for_save(self) -> None:
        return
