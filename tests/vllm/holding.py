"""A connector of a vLLM that keeps the blocks of ended requests, as a prefill server's does.

Moves nothing: the decode server "fetches" a request's KV after as many seconds as the request says
in `kv_transfer_params`, and never fetches that of one that says nothing, which is given up after
`give_up_seconds` of the connector's own configuration. Imported by vLLM, from a folder on its path.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)

_PAUSE_SECONDS = 0.02
"""A vLLM that only waits for transfers would otherwise step as fast as it can."""


@dataclass
class Fetches(KVConnectorMetadata):  # type: ignore[misc]
    """Requests that ended since the last step, and the seconds until each is fetched."""

    seconds: dict[str, float] = field(default_factory=dict)


class HoldingConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """One for the scheduler and one for the worker, which share nothing but `Fetches`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        extra = self._kv_transfer_config.kv_connector_extra_config
        self._give_up_seconds = float(extra["give_up_seconds"])
        self._ended: dict[str, float] = {}
        self._held: set[str] = set()
        self._until: dict[str, float] = {}

    # Methods that the scheduler calls.

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        pass

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        seconds = (request.kv_transfer_params or {}).get("seconds", self._give_up_seconds)
        self._ended[request.request_id] = seconds
        self._held.add(request.request_id)
        return True, None

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        ended, self._ended = self._ended, {}
        return Fetches(ended)

    def update_connector_output(self, connector_output: Any) -> None:
        self._held.difference_update(connector_output.finished_sending or ())

    def has_pending_push_work(self) -> bool:
        return bool(self._held)

    # Methods that the worker calls.

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

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, None]:
        now = time.monotonic()
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Fetches)
        for request, seconds in metadata.seconds.items():
            self._until[request] = now + seconds
        sent = {request for request, until in self._until.items() if until <= now}
        for request in sent:
            del self._until[request]
        if self._until:
            time.sleep(_PAUSE_SECONDS)
        return sent or None, None


class DelayingConnector(HoldingConnector):
    """Loads prompts of even length from elsewhere, where they never arrive; of an odd one that
    three divides it does not know yet."""

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        prompt = request.num_prompt_tokens
        if prompt % 2 == 0:
            return (prompt - 1) // 16 * 16 - num_computed_tokens, True
        return (None, False) if prompt % 3 == 0 else (0, False)


class LateConnector(HoldingConnector):
    """Loads every prompt from elsewhere, in as many seconds; keeps nothing."""

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return (request.num_prompt_tokens - 1) // 16 * 16 - num_computed_tokens, True

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            self._ended[request.request_id] = self._give_up_seconds

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return False, None

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        arrived, _ = super().get_finished(finished_req_ids)
        return None, arrived
