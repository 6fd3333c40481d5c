"""For Ray Serve LLM, whose replicas have one environment: a folder of sockets for each on a node.

In an LLMConfig:
`callback_config: {callback_class: kvscope_events.observers.ray_serve.ObserverSlot}`
"""

import os

from ray.llm._internal.common.callbacks.base import CallbackBase

from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE, SWITCH_VARIABLE, directory
from kvscope_events.observers.log import warn
from kvscope_events.observers.slots import NoSlotError, take_slot

DEFAULT_SLOTS = 8
"""As many replicas as a node has GPUs; further ones would serve unobserved, and say so in their
log."""


class ObserverSlot(CallbackBase):
    """`callback_kwargs: {slots: N}` for more replicas. Without a folder the observer stays off."""

    async def on_before_node_init(self) -> None:
        """Called by Ray in the replica, before its vLLM starts processes of its own."""
        slots = int(self.kwargs.get("slots", DEFAULT_SLOTS))
        try:
            os.environ[DIRECTORY_VARIABLE] = take_slot(directory(), slots)
        except (NoSlotError, OSError) as error:
            os.environ[SWITCH_VARIABLE] = "off"
            warn(f"off: {error}")
