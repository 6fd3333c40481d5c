"""A headless Chromium that is driven over two pipes, in its own DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
WAIT_SECONDS = 30.0


class PageError(Exception):
    """The page or the browser refused; `str()` has its words."""


class Page:
    """One tab. Messages of its console, and exceptions in it, are kept in `complaints`."""

    def __init__(self, sending: int, receiving: int) -> None:
        self._sending = sending
        self._receiving = receiving
        self._rest = b""
        self._number = 0
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        attach = {"targetId": target, "flatten": True}
        self._session = self._call("Target.attachToTarget", attach, None)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A method of the protocol. Raises PageError."""
        return self._call(method, parameters, self._session)

    @contextmanager
    def at(self, url: str) -> Iterator[None]:
        """Show this inside the block; `complaints` are those about it."""
        self.complaints.clear()
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")
        try:
            yield
        finally:
            self.call("Page.navigate", url="about:blank")

    def size(self, width: int, height: int, scheme: str = "light") -> None:
        """scheme: light or dark, as the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript, awaited. Raises PageError."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise PageError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = WAIT_SECONDS) -> Any:
        """Wait until an expression is true; returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.value(expression)
            if value:
                return value
            assert time.monotonic() < deadline, f"never true: {expression}; {self.complaints}"
            time.sleep(0.05)

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def _call(self, method: str, parameters: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._sending, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self._hear(answer)
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._receiving, 1 << 16)
            if not read:
                raise PageError("the browser has ended")
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    def _hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.complaints.append(json.dumps(details)[:1000])
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error"} as entry}}:
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")


@contextmanager
def browsing() -> Iterator[Page]:
    """A tab of a browser of its own, which reaches nothing but this machine."""
    program = shutil.which(PROGRAM)
    assert program is not None, "no Chromium: install the package chromium"
    to_browser, sending = os.pipe()
    receiving, from_browser = os.pipe()

    def join() -> None:
        os.dup2(to_browser, 13)
        os.dup2(from_browser, 14)
        os.dup2(13, 3)
        os.dup2(14, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--remote-debugging-pipe", "--disable-background-networking", "--no-first-run"),
            *("--disable-component-update", "--disable-dev-shm-usage", "--mute-audio"),
            f"--user-data-dir={Path(profile)}",
        ]
        browser = subprocess.Popen(
            command,
            preexec_fn=join,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(sending, receiving)
        finally:
            browser.terminate()
            browser.wait(timeout=20)
            os.close(sending)
            os.close(receiving)
