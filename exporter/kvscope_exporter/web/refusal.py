"""Refuses a request before an app sees it, in OpenAI's format."""

from collections.abc import Mapping

from starlette.responses import JSONResponse

_KINDS = {503: "service_unavailable"}
_KIND = "invalid_request_error"
"""OpenAI's type of error for any other status."""


class Refused(Exception):
    """The reason why a request is refused; `response` is its answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The status of the answer."""
        self.headers = dict(headers or {})
        """Further headers of the answer."""

    @property
    def response(self) -> JSONResponse:
        error = {
            "message": str(self),
            "type": _KINDS.get(self.status, _KIND),
            "param": None,
            "code": self.status,
        }
        return JSONResponse({"error": error}, self.status, self.headers)
