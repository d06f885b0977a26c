# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the client: all of them are a `SandglassError`."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Type

if TYPE_CHECKING:
    from .models import CodeResult, ResultBase


class SandglassError(Exception):
    """The daemon refused or failed, or could not be reached.

    `code` is the machine-readable name of the error ("session_not_found"), `status` that of HTTP (0 when there was no
    answer), `hint` what would help, `retryable` whether the same request may succeed later, `request_id` what to look
    for in the daemon's log.
    """

    def __init__(self, message: str, *, code: str = "unknown", status: int = 0, hint: str = "",
                 retryable: bool = False, request_id: str = "", detail: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.code = code
        self.status = status
        self.hint = hint
        self.retryable = retryable
        self.request_id = request_id
        self.detail: Dict[str, Any] = dict(detail or {})


class Unavailable(SandglassError):
    """No daemon there, it went away in the middle of an answer, or it is starting or stopping."""


class Invalid(SandglassError):
    """The request is wrong: an unknown field, a value out of range."""


class Unauthorized(SandglassError):
    """No credentials, or wrong ones."""


class Forbidden(SandglassError):
    """These credentials do not allow it."""


class NotFound(SandglassError):
    """The object does not exist, or belongs to another owner."""


class Conflict(SandglassError):
    """It exists with other parameters, has moved on to another generation, or is in the wrong state."""


class Gone(SandglassError):
    """It existed and has ended: `reason` says why ("idle", "lease", "deleted", "crashed: oom")."""

    @property
    def reason(self) -> str:
        error = self.detail.get("error")
        return str((error.get("reason") if isinstance(error, dict) else None) or "")


class LimitReached(SandglassError):
    """A limit was reached; `retry_after` is the number of seconds after which it may work."""

    retry_after: float = 1.0


class BackendFailed(SandglassError):
    """The sandbox could not be made or was lost."""


class NotReady(SandglassError):
    """It did not become ready in time."""


class ExecutionFailed(SandglassError):
    """A program did not end with exit code 0; `result` is all that is known of it. See `Result.check`."""

    def __init__(self, message: str, result: "ResultBase") -> None:
        super().__init__(message, code="execution_failed")
        self.result = result


class CodeFailed(SandglassError):
    """Code in a context ended with an exception, or was stopped; `result` has all of it. See `CodeResult.check`."""

    def __init__(self, message: str, result: "CodeResult") -> None:
        super().__init__(message, code="code_failed")
        self.result = result


class FileNotFound(NotFound):
    """There is no such file, or it is not a directory."""


class DiskFull(LimitReached):
    """There is no space left in the sandbox."""


_BY_CODE: Dict[str, Type[SandglassError]] = {
    "file_not_found": FileNotFound, "not_a_directory": FileNotFound, "no_space": DiskFull,
}

_BY_STATUS: Dict[int, Type[SandglassError]] = {
    0: Unavailable, 400: Invalid, 401: Unauthorized, 403: Forbidden, 404: NotFound, 405: Invalid, 409: Conflict,
    410: Gone, 412: Conflict, 413: Invalid, 415: Invalid, 416: Invalid, 429: LimitReached, 502: BackendFailed,
    503: Unavailable, 504: NotReady, 507: LimitReached,
}


def error_from(status: int, headers: Mapping[str, str], body: Any) -> SandglassError:
    """The exception for an answer of the daemon; `body` is its JSON, or anything else if it had none."""
    detail = body if isinstance(body, dict) else {}
    said = detail.get("error")
    said = said if isinstance(said, dict) else {}
    kind = _BY_STATUS.get(status, SandglassError)
    special = _BY_CODE.get(str(said.get("code")))
    if special is not None and issubclass(special, kind):
        kind = special
    error = kind(str(said.get("message") or f"the daemon answered {status}"),
                 code=str(said.get("code") or "unknown"), status=status, hint=str(said.get("hint") or ""),
                 retryable=bool(said.get("retryable")), request_id=headers.get("x-request-id", ""), detail=detail)
    if isinstance(error, LimitReached):
        try:
            error.retry_after = float(headers.get("retry-after", "1"))
        except ValueError:
            error.retry_after = 1.0
    return error
