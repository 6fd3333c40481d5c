"""The one error of a step that the engine survives."""


class DeviceOutOfMemoryError(Exception):
    """The device (or on a CPU the host) could not give the memory that a step asked for.

    Nothing was computed that the scheduler knows of: the step can be tried again, smaller.
    """

    def __init__(self, wanted_bytes: int | None) -> None:
        wanted = "an unknown number of" if wanted_bytes is None else str(wanted_bytes)
        super().__init__(f"out of device memory: {wanted} bytes wanted")
        self.wanted_bytes = wanted_bytes
