"""Who may ask for what: decided in front of an app, before a byte of the body is read."""

from exporter.web.access.credentials import Credentials
from exporter.web.access.permissions import CLIENT, Access, AccessConfig

__all__ = ["CLIENT", "Access", "AccessConfig", "Credentials"]
