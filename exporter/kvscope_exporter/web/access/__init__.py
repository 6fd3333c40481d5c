"""Access control: decided in front of an app, before a byte of the body is read."""

from kvscope_exporter.web.access.credentials import Credentials
from kvscope_exporter.web.access.permissions import Access, AccessConfig

__all__ = ["Access", "AccessConfig", "Credentials"]
