"""The tier from which a vLLM's connector loads, by the name of its class."""

from typing import Any

from kvscope_events.vocabulary import Tier

_TIERS: dict[str, Tier] = {
    "SimpleCPUOffloadConnector": "host",
    "NixlConnector": "remote",
    "NixlPullConnector": "remote",
    "NixlPushConnector": "remote",
    "MooncakeConnector": "remote",
    "MooncakeStoreConnector": "remote",
    "MoRIIOConnector": "remote",
    "LMCacheConnectorV1": "other",
    "LMCacheMPConnector": "other",
}
"""LMCache has tiers of its own, and does not say from which it loads."""
_IN_HOST_MEMORY = "CPUOffloadingSpec"
"""The default of the OffloadingConnector; another may keep blocks elsewhere."""
HOST_MANAGER = "CPUOffloadingManager"
"""Its manager, which others may use as well; without it their medium is not known."""


def tier_of(connector: Any) -> Tier | None:
    """None: there is no connector, or it loads from somewhere that we do not know."""
    if connector is None:
        return None
    names = [kind.__name__ for kind in type(connector).__mro__]
    if "OffloadingConnector" in names:
        own = getattr(connector, "connector_scheduler", None)
        if type(getattr(own, "manager", None)).__name__ == HOST_MANAGER:
            return "host"
        return "host" if _specification(connector) == _IN_HOST_MEMORY else None
    return next((_TIERS[name] for name in names if name in _TIERS), None)


def _specification(connector: Any) -> str:
    config = getattr(connector, "_kv_transfer_config", None)
    extra = getattr(config, "kv_connector_extra_config", None) or {}
    return str(extra.get("spec_name", _IN_HOST_MEMORY))
