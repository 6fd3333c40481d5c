"""Digests of what names a tenant, keyed with a secret, without which names cannot be tried out.

With the same secret, a tenant has the same digest on every replica.
"""

import hmac
import os
import secrets

SECRET_VARIABLE = "KVSCOPE_TENANT_SECRET"
LEAST_CHARACTERS = 16
"""Fewer can be tried out as well as names can."""
TENANT_FIELD = "kvscope-tenant"
"""Key of a digest among the headers with which a front end hands a request to its scheduler."""


def tenant_digest(named: object) -> str:
    """Digits for `RequestArrived.tenant`, with its flag; empty: the client names no tenant.

    A user, a session or a salt may be a person or a secret, so it does not leave its process.
    """
    text = named if isinstance(named, bytes) else str(named or "").encode(errors="replace")
    if not text:
        return ""
    return hmac.digest(_secret().encode(errors="replace"), text, "sha256").hex()[:16]


def share_secret() -> str:
    """Have this process and all that it starts from here on use one secret.

    That is the environment's, or a random one where it has none. Returns the problem of the
    environment's, or nothing.
    """
    given = os.environ.get(SECRET_VARIABLE, "")
    _secret()
    if 0 < len(given) < LEAST_CHARACTERS:
        return (
            f"{SECRET_VARIABLE} has fewer than {LEAST_CHARACTERS} characters: a random secret is "
            "used, and tenants have other digests than on other replicas"
        )
    return ""


def _secret() -> str:
    given = os.environ.get(SECRET_VARIABLE, "")
    if len(given) >= LEAST_CHARACTERS:
        return given
    os.environ[SECRET_VARIABLE] = made = secrets.token_hex(16)
    return made
