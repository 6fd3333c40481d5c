"""The recent past of a running server, which its flight recorder keeps, for the live page's slider.

The recording is copied into a file and played, as `kvscope rec play` would. The first request opens
it, and it is closed when none has come for a while. These routes check no key: the app that
includes them controls access.
"""

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from kvscope.replay.player import Player
from kvscope_exporter.answers.question import Question
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.live.hub import among
from kvscope_exporter.live.view import UnknownHereError, View
from kvscope_exporter.paths import LIVE_DATA
from kvscope_exporter.recorder.format import RecordingError
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.recorder.saved import kept_chunks
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.reply import Reply
from kvscope_exporter.web.answers import NoServerError
from kvscope_exporter.web.metrics import METHODS

KEPT_SECONDS = 60.0
"""An opened past is closed this long after it was last asked."""
FRESH_SECONDS = 5.0
"""One that was opened so lately is as good as another."""
MOST_ASKED = 16
"""Requests at a time. A disk may hang, and each has one of the threads that pages need as well."""
MOST_OPEN = 4
"""Servers of one process whose past is open; the one left alone longest gives way to another."""

T = TypeVar("T")
_ENCODE = msgspec.json.Encoder().encode
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class PastMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of what is kept; Unix times in seconds."""

    at: str
    """With nine decimals, by which steps differ; a number of JavaScript does not keep them."""
    begins: float
    ends: float


At = Annotated[str, Query(pattern=r"^\d{1,11}(\.\d{1,9})?$")]


class _OpenRecording:
    """The recording of one server, as it was when it was opened."""

    def __init__(self, recorder: Recorder) -> None:
        """Raises OSError and RecordingError."""
        self._folder = tempfile.TemporaryDirectory(prefix="kvscope-past-")
        try:
            recorder.rotate()
            path = Path(self._folder.name) / "past.kvsr"
            with path.open("wb") as file:
                file.writelines(kept_chunks(recorder.ring.since(0)))
            self.player = Player(path)
        except BaseException:
            self._folder.cleanup()
            raise
        self.recorder = recorder
        self.opened_at = self.asked_at = time.monotonic()

    def close(self) -> None:
        self.player.close()
        self._folder.cleanup()


class Pasts:
    """For any thread; one request at a time, since each may go to a moment of its own."""

    def __init__(self, find: Callable[[str], Exporter]) -> None:
        """find: the server named; an empty name stands for the only one. Raises NoServerError."""
        self._find = find
        self._open: dict[str, _OpenRecording] = {}
        self._lock = threading.Lock()
        self._closing: threading.Thread | None = None

    def moment(self, name: str, at: str | None, step: int) -> PastMoment:
        """That many steps after a moment. at: Unix time; None: the end of what is kept now.

        Raises NoServerError, UnknownHereError, OSError and RecordingError.
        """
        with self._lock:
            player = self._opened(name, again=at is None).player
            file = player.file
            player.seek(file.ends_ns if at is None else _ns(at))
            if step:
                player.step(step)
            whole, rest = divmod(player.at_ns, 10**9)
            return PastMoment(
                at=f"{whole}.{rest:09}", begins=file.begins_ns / 1e9, ends=file.ends_ns / 1e9
            )

    def read(self, name: str, engine: str, at: str, read: Callable[[View], Any]) -> Any:
        """Read from a live view of the engine at that moment. Raises as `moment`."""
        with self._lock:
            player = self._opened(name, again=False).player
            player.seek(_ns(at))
            with player.present() as targets:
                return read(View(among(targets, engine)))

    def answer(self, name: str, at: str, question: Question[Any]) -> Reply:
        """The answers of that moment. Raises as `moment`."""
        return self._at(name, at, lambda player: player.answer(question))

    def page(self, name: str, at: str) -> bytes:
        """The metrics page of that moment. Raises as `moment`."""
        return self._at(name, at, lambda player: player.render()[0])

    def _at(self, name: str, at: str, read: Callable[[Player], T]) -> T:
        with self._lock:
            player = self._opened(name, again=False).player
            player.seek(_ns(at))
            return read(player)

    def _opened(self, name: str, *, again: bool) -> _OpenRecording:
        recorder = self._find(name).recorder
        if recorder is None:
            raise UnknownHereError("this server is not recorded, so nothing of its past is kept")
        now = time.monotonic()
        past = self._open.get(name)
        is_stale = past is not None and again and now - past.opened_at > FRESH_SECONDS
        if past is None or past.recorder is not recorder or is_stale:
            self._drop(name)
            while len(self._open) >= MOST_OPEN:
                self._drop(min(self._open, key=lambda each: self._open[each].asked_at))
            past = self._open[name] = _OpenRecording(recorder)
            if self._closing is None:
                self._closing = threading.Thread(
                    target=self._close_those_left, name="kvscope-past", daemon=True
                )
                self._closing.start()
        past.asked_at = now
        return past

    def _drop(self, name: str) -> None:
        past = self._open.pop(name, None)
        if past is not None:
            past.close()

    def _close_those_left(self) -> None:
        while True:
            time.sleep(KEPT_SECONDS / 4)
            with self._lock:
                limit = time.monotonic() - KEPT_SECONDS
                for name in [name for name, past in self._open.items() if past.asked_at < limit]:
                    self._drop(name)
                if not self._open:
                    self._closing = None
                    return


def _ns(at: str) -> int:
    whole, _, rest = at.partition(".")
    return int(whole) * 10**9 + int(rest.ljust(9, "0"))


def past_router(find: Callable[[str], Exporter]) -> APIRouter:
    """`GET /live/past?at=&step=`, and of a moment `snapshot`, `sequence`, `block`, `page` and
    `api/NAME` below it."""
    router = APIRouter(prefix=f"{LIVE_DATA.path}past", include_in_schema=False)
    pasts = Pasts(find)
    room = threading.Semaphore(MOST_ASKED)

    def answered(work: Callable[[], Any]) -> Response:
        if not room.acquire(blocking=False):
            return PlainTextResponse("others are being answered: ask again\n", 503)
        try:
            answer = work()
        except NoServerError as error:
            return PlainTextResponse(f"{error}\n", error.status)
        except (UnknownHereError, RecordingError) as error:
            return PlainTextResponse(f"{error}\n", 404)
        except OSError as error:
            return PlainTextResponse(f"the past cannot be opened: {error.strerror}\n", 507)
        finally:
            room.release()
        if answer is None:
            return PlainTextResponse("not known at that moment\n", 404)
        if isinstance(answer, bytes):
            return Response(answer, headers=_HEADERS, media_type="application/octet-stream")
        return Response(_ENCODE(answer), headers=_HEADERS, media_type="application/json")

    @router.api_route("", methods=METHODS)
    def moment(target: str = "", at: At | None = None, step: int = 0) -> Response:
        return answered(lambda: pasts.moment(target, at, step))

    @router.api_route("/snapshot", methods=METHODS)
    def snapshot(at: At, engine: str, target: str = "") -> Response:
        return answered(lambda: pasts.read(target, engine, at, lambda view: view.snapshot()[1]))

    @router.api_route("/sequence", methods=METHODS)
    def sequence(at: At, engine: str, id: int, target: str = "") -> Response:
        return answered(lambda: pasts.read(target, engine, at, lambda view: view.sequence(id)))

    @router.api_route("/block", methods=METHODS)
    def block(at: At, engine: str, id: int, target: str = "") -> Response:
        return answered(lambda: pasts.read(target, engine, at, lambda view: view.block(id)))

    @router.api_route("/page", methods=METHODS)
    def page(at: At, target: str = "") -> Response:
        return answered(lambda: pasts.page(target, at))

    @router.api_route("/api/{name}", methods=METHODS)
    def answer(name: str, at: At, target: str = "") -> Response:
        question = QUESTIONS.get(name)
        return answered(lambda: None if question is None else pasts.answer(target, at, question))

    return router
