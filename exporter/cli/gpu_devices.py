"""`--gpu-devices`: which GPUs of the host are watched."""

import os
from collections.abc import Mapping
from enum import StrEnum


class GpuDevices(StrEnum):
    """Values of the option."""

    VISIBLE = "visible"
    ALL = "all"

    def environment(self) -> Mapping[str, str]:
        """For the poller: without a variable, nothing is hidden."""
        return dict(os.environ) if self is GpuDevices.VISIBLE else {}
