"""Refuses a request before an app sees it, in the format of OpenAI's API."""

from collections.abc import Mapping

from starlette.responses import JSONResponse

_KINDS = {503: "service_unavailable"}
_KIND = "invalid_request_error"


class Refused(Exception):
    """Why a request is not served; `response` is its answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})

    @property
    def response(self) -> JSONResponse:
        error = {
            "message": str(self),
            "type": _KINDS.get(self.status, _KIND),
            "param": None,
            "code": self.status,
        }
        return JSONResponse({"error": error}, self.status, self.headers)
