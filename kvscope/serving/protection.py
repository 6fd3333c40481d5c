"""Turns the options for keys and TLS into the access control of a command's ports."""

import logging
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.options.listen import ApiKeys, PageAccess
from kvscope.output import fail
from kvscope_exporter.extras import lacking

if TYPE_CHECKING:
    from kvscope_exporter.web.access import Credentials

logger = logging.getLogger("kvscope")
_NO_KEYS = ApiKeys()


class Protection:
    """Keys and certificates, read once. Raises typer.Exit(2) for a file that cannot be used."""

    def __init__(
        self, config: PageAccess, hosts: Iterable[str] = (), keys: ApiKeys = _NO_KEYS
    ) -> None:
        """hosts: names and addresses that the command listens on."""
        from kvscope_exporter.configuration import ConfigurationError
        from kvscope_exporter.web.access import AccessConfig
        from kvscope_exporter.web.access.web_config import WebConfig, read_web_config

        try:
            web = WebConfig()
            if config.web_config_file is not None:
                web = read_web_config(config.web_config_file)
                if web.users and (problem := lacking("basic_auth_users", "basic-auth")):
                    raise ValueError(f"{config.web_config_file}: {problem}")
            self.tls = _tls(config)
        except (ConfigurationError, ValueError) as error:
            raise fail(error) from None
        self._page_tls = web.tls
        given = (*hosts, *config.allowed_hosts)
        self.access: AccessConfig = AccessConfig(
            api=_api(keys), pages=_pages(config, web.users), hosts=frozenset(given)
        )

    @property
    def tls_of_pages(self) -> ssl.SSLContext | None:
        """TLS of a metrics-only port: from its own file, else as for the API."""
        return self._page_tls or self.tls

    def refuse_tls_of_pages(self) -> None:
        """Refuse it for a command without such a port. Raises typer.Exit(2)."""
        if self._page_tls is not None:
            raise fail(
                "--web-config-file: tls_server_config needs a port of its own for metrics: add "
                "--metrics-port, or use --ssl-certfile for both"
            )

    def warn(self, host: str, url: str, *, has_api: bool) -> None:
        """Warn if a port beyond loopback is open to anyone who can reach it."""
        from kvscope_exporter.web.access.origin import is_loopback

        if is_loopback(host):
            return
        if has_api and self.access.api is None:
            logger.warning(
                "%s is open to anyone who can reach it: --api-key-file asks for a key", url
            )
        elif not has_api and self.access.pages is None:
            logger.warning(
                "%s is open to anyone who can reach it: --metrics-key-file asks for a key, "
                "--web-config-file for a password",
                url,
            )


def _tls(config: PageAccess) -> ssl.SSLContext | None:
    """Raises ValueError."""
    from kvscope_exporter.web.tls import server_context

    if config.ssl_certfile is None:
        return None
    return server_context(config.ssl_certfile, config.ssl_keyfile)


def _api(config: ApiKeys) -> "Credentials | None":
    from kvscope_exporter.web.access import Credentials

    keys = _keys("--api-key-file", config.api_key_file)
    if config.api_key is not None:
        keys = (config.api_key, *keys)
    return Credentials(keys) if keys else None


def _pages(config: PageAccess, users: dict[str, bytes]) -> "Credentials | None":
    from kvscope_exporter.web.access import Credentials

    keys = _keys("--metrics-key-file", config.metrics_key_file)
    return Credentials(keys, users) if keys or users else None


def _keys(option: str, file: Path | None) -> tuple[str, ...]:
    from kvscope_exporter.web.access.keys import read_keys

    if file is None:
        return ()
    try:
        return read_keys(file)
    except ValueError as error:
        raise fail(f"{option}: {error}") from None
