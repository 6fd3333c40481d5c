"""A client for one server; over https with the certificates that identify both sides."""

import ssl
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    ca: str | None = None
    """File of certificates to trust; None: those of the system."""
    cert: str | None = None
    """File of our certificate, for servers that ask for one."""
    key: str | None = None
    """File of its key; None: in the file of the certificate."""
    server_name: str | None = None
    """The name that the server's certificate must have; None: the URL's host."""
    verify: bool = True
    """Whether the server's certificate is verified; without that, anyone can answer in its place.
    """

    def client(self, url: str, timeout: float) -> httpx.Client:
        """A client for `url`. Raises OSError like `context`, which only https needs."""
        return httpx.Client(
            verify=self.context() if url.lower().startswith("https:") else False,
            timeout=timeout,
            trust_env=False,  # no proxy and no ~/.netrc between us and a neighbour
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def context(self) -> ssl.SSLContext:
        """Raises OSError for a file that is missing or unreadable."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            # OpenSSL would ask for the password of an encrypted key on the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
