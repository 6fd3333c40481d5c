"""`--kv-events-config`: vLLM's JSON with vLLM's defaults, except for an unset endpoint."""

from typing import Annotated, Literal

import msgspec

from kvscope_events.wire.endpoint import EndpointError, parse_endpoint

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5557"
_INT32 = (1 << 31) - 1  # ZMQ's limits are C integers
_Positive = Annotated[int, msgspec.Meta(ge=1, le=_INT32)]


class KvEventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the publication of KV events. The last two fields are not vLLM's."""

    enable_kv_cache_events: bool = False
    publisher: Literal["null", "zmq"] | None = None
    """None: zmq if the events are enabled."""
    endpoint: str | None = None
    """ZeroMQ PUB address; None: port 5557 of loopback, bound. vLLM's default is every address."""
    replay_endpoint: str | None = None
    """ZeroMQ ROUTER address, always bound; None: missed messages are lost."""
    buffer_steps: Annotated[int, msgspec.Meta(ge=0, le=_INT32)] = 10_000
    """Messages kept for replays."""
    hwm: _Positive = 100_000
    """Messages queued for one subscriber before it loses the next ones."""
    max_queue_size: _Positive = 100_000
    """Messages that wait to be encoded before the next ones are dropped."""
    topic: Annotated[str, msgspec.Meta(max_length=256)] = ""
    bind: bool | None = None
    """Whether to listen at `endpoint` or to connect to it; None: as vLLM decides, see `binds`."""
    int_block_hashes: bool = True
    """Hashes as the low 64 bits of names, vLLM's default; False: as bytes, which vLLM sends with
    VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0."""

    def __post_init__(self) -> None:
        for field in ("endpoint", "replay_endpoint"):
            endpoint = getattr(self, field)
            if endpoint is None:
                continue
            try:
                parse_endpoint(endpoint, allow_remote=True)
            except EndpointError as error:
                raise ValueError(f"{field}: {error}") from None
        for field, endpoint in (("endpoint", self.binds), ("replay_endpoint", True)):
            address = getattr(self, field)
            if address is not None and "://*:" in address and not endpoint:
                raise ValueError(f"{field}: {address}: no host to connect to; name one")

    @property
    def is_on(self) -> bool:
        return self.enable_kv_cache_events and self.publisher != "null"

    @property
    def address(self) -> str:
        """The address of the PUB socket, as given."""
        return DEFAULT_ENDPOINT if self.endpoint is None else self.endpoint

    @property
    def binds(self) -> bool:
        """Like vLLM, listen at wildcards and `ipc://`, and connect to every other endpoint."""
        if self.bind is not None:
            return self.bind
        if self.endpoint is None:
            return True
        return "*" in self.endpoint or "::" in self.endpoint or self.endpoint.startswith("ipc://")

    @property
    def remote_addresses(self) -> list[str]:
        """Addresses that lead beyond this machine."""
        addresses = [self.address, self.replay_endpoint]
        return [address for address in addresses if address is not None and _is_remote(address)]


def parse_kv_events_config(text: str) -> KvEventsConfig:
    """Raises ValueError, which names the flag and the field."""
    try:
        return msgspec.json.decode(text, type=KvEventsConfig)
    except msgspec.MsgspecError as error:
        raise ValueError(f"--kv-events-config: {error}") from None


def _is_remote(endpoint: str) -> bool:
    try:
        parse_endpoint(endpoint)
    except EndpointError:
        return True
    return False
