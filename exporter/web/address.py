"""HOST:PORT as text, checked."""

import re

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,252}))(:[0-9]{1,5})?")


def is_address(text: str) -> bool:
    """Whether the text is a host, or a host and a port."""
    if _ADDRESS.fullmatch(text) is None:
        return False
    port = re.search(r":([0-9]+)$", text.rpartition("]")[2])
    return port is None or 0 < int(port[1]) < 2**16
