"""A connector of a vLLM's scheduler, whose prompts of even length arrive from elsewhere, later.

Moves nothing, and has no worker: a test says what has arrived. Prompts of a length that three
divides are undecided for as long as the connector is `undecided`.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)


class DelayingConnector(KVConnectorBase_V1):  # type: ignore[misc]
    undecided = True

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        prompt = request.num_prompt_tokens
        if prompt % 3 == 0 and self.undecided:
            return None, False
        ahead = (prompt - 1) // 16 * 16 - num_computed_tokens
        return (ahead, True) if prompt % 2 == 0 and ahead > 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        pass

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        pass

    def wait_for_save(self) -> None:
        pass
