"""TLS of a listener: its certificate, and whether clients need one as well."""

import ssl
from pathlib import Path
from typing import Literal

ClientAuth = Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
"""Names of Go's `tls.ClientAuthType`, as in Prometheus' web configuration. Types that accept any
certificate without verification are no protection, and not supported."""
MinVersion = Literal["TLS12", "TLS13"]

MAX_FILE_BYTES = 4 << 20
"""Maximum bytes of a certificate with its chain, or a file of authorities."""
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


def server_context(
    certificate: Path,
    key: Path | None,
    *,
    authorities: Path | None = None,
    client_auth: ClientAuth = "NoClientCert",
    min_version: MinVersion = "TLS12",
) -> ssl.SSLContext:
    """All files in PEM. key: None: in the file of the certificate. authorities: of clients.

    Raises ValueError, which names the file.
    """
    for file in (certificate, key, authorities):
        if file is not None:
            _check_file(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[min_version]
    files = str(certificate) if key is None else f"{certificate}, {key}"
    try:
        # OpenSSL would ask for the password of an encrypted key on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(
            f"{files}: no certificate with its key in PEM ({_reason(error)})"
        ) from None
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except OSError as error:
            raise ValueError(f"{authorities}: no certificates in PEM ({_reason(error)})") from None
    context.verify_mode = _VERIFY[client_auth]
    return context


def _check_file(file: Path) -> None:
    try:
        size = file.stat().st_size
        if not file.is_file() or size > MAX_FILE_BYTES:
            raise ValueError(f"{file}: not a file of at most {MAX_FILE_BYTES >> 20} MiB")
        file.open("rb").close()
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None


def _reason(error: OSError) -> str:
    return (getattr(error, "reason", None) or error.strerror or str(error)).lower()
