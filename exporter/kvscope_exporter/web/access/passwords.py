"""Passwords against bcrypt hashes, which are slow by design: on one thread, and remembered."""

import asyncio
import hashlib
import hmac
import os
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt

from kvscope_exporter.web.refusal import Refused

MAX_WAITING = 8
"""Passwords that wait for the thread; further ones get 503. A known correct one never waits."""
MAX_WAITING_OF_ONE = 2
"""Checks from one address: guessing from there does not delay another address's first answer."""
MAX_PASSWORD_BYTES = 72
"""bcrypt ignores further bytes of a password."""
MAX_REMEMBERED = 64
"""Correct passwords to remember, usually one for each user."""
MAX_WRONG = 1024
"""The same for wrong ones: a misconfigured client keeps sending the same one."""
RETRY_AFTER_SECONDS = 1


class Passwords:
    """Passwords of the users of a web config; for one event loop."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        """users: bcrypt hash by name."""
        self._users = {name.encode(): hashed for name, hashed in users.items()}
        self._unknown = next(iter(self._users.values()))
        """Compared for an unknown user, so that timing does not reveal which users exist."""
        self._secret = os.urandom(32)
        self._right: set[bytes] = set()
        self._wrong: set[bytes] = set()
        self._waiting: Counter[str] = Counter()
        """By address."""
        self._thread = ThreadPoolExecutor(1, "kvscope-passwords")

    async def match(self, user: bytes, password: bytes, address: str) -> bool:
        """Whether this is the user's password. Raises Refused if too many are being checked."""
        if len(password) > MAX_PASSWORD_BYTES or b"\0" in password:
            return False
        # A remembered password must not be readable in a dump of the process.
        pair = len(user).to_bytes(4, "big") + user + password
        remembered = hmac.digest(self._secret, pair, hashlib.sha256)
        if remembered in self._right:
            return True
        if remembered in self._wrong:
            return False
        waiting = self._waiting
        if waiting.total() >= MAX_WAITING or waiting[address] >= MAX_WAITING_OF_ONE:
            message = "too many passwords are being checked: try again"
            raise Refused(503, message, {"Retry-After": str(RETRY_AFTER_SECONDS)})
        hashed = self._users.get(user)
        waiting[address] += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(
                self._thread, bcrypt.checkpw, password, hashed or self._unknown
            )
        finally:
            waiting[address] -= 1
            if not waiting[address]:
                del waiting[address]
        if hashed is None or not is_right:
            if len(self._wrong) >= MAX_WRONG:
                self._wrong.clear()
            self._wrong.add(remembered)
            return False
        if len(self._right) >= MAX_REMEMBERED:
            self._right.clear()
        self._right.add(remembered)
        return True
