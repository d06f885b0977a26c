# SPDX-License-Identifier: Apache-2.0
"""The results of calls: plain values, the same for both clients."""
from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from .errors import CodeFailed, ExecutionFailed

if TYPE_CHECKING:
    from . import types

Argv = Union[str, Sequence[str]]

ENDED = ("exited", "timeout", "output_limit", "cancelled", "crashed")

R = TypeVar("R", bound="ResultBase")


def given(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Without those that are None."""
    return {name: value for name, value in options.items() if value is not None}


def execution_body(program: Argv, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The body of an execution: a list is an argv, a text is a line for the shell."""
    body = given(options)
    if isinstance(program, str):
        body["command"] = program
    else:
        body["argv"] = [str(word) for word in program]
    return body


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:120] if lines else ""


class ResultBase:
    """An execution that has ended.

    `state` is "exited", "timeout", "output_limit", "cancelled" or "crashed". `exit_code` is None when a signal ended the
    program: then `signal` has its number. `stdout` and `stderr` are text, with U+FFFD for bytes that are not UTF-8. They hold
    the beginning and the end of a long output (`truncated`).
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.id = str(document.get("id") or document.get("execution_id") or "")
        self.state = str(document.get("state") or "")
        self.exit_code: Optional[int] = document.get("exit_code")
        self.signal: Optional[int] = document.get("signal")
        self.reason = str(document.get("reason") or "")
        error = document.get("error")
        self.error = str(error.get("message") if isinstance(error, dict) else error or "")
        self.stdout = str(document.get("stdout") or "")
        self.stderr = str(document.get("stderr") or "")
        self.truncated = bool(document.get("truncated"))
        self.duration = float(document.get("duration_seconds") or 0.0)
        self.files_were_reset = bool(document.get("files_were_reset"))
        self.reset_reason = str(document.get("reset_reason") or "")
        self.output_files: List[str] = [str(name) for name in document.get("output_files") or []]
        self.session_files: List["types.StoredFile"] = list(document.get("session_files") or [])

    @property
    def ok(self) -> bool:
        """Whether it ended with exit code 0."""
        return self.state == "exited" and self.exit_code == 0

    def check(self: R) -> R:
        """Itself if it ended with exit code 0; raises `ExecutionFailed` otherwise."""
        if self.ok:
            return self
        how = f"exit code {self.exit_code}" if self.exit_code is not None else f"signal {self.signal}"
        if self.state != "exited":
            how = f"{self.state} {self.reason or self.error}".strip()
        raise ExecutionFailed(f"execution {self.id}: {how}\n{self.stderr[-2000:]}".rstrip(), self)

    def __repr__(self) -> str:
        how = f"exit_code={self.exit_code}" if self.signal is None else f"signal={self.signal}"
        said = last_line(self.stderr)
        return f"<Result {self.id} {self.state} {how}{f' stderr={said!r}' if said else ''}>"


class Chunk(NamedTuple):
    """Some bytes of an output, exactly as the program wrote them: `stream` is "stdout" or "stderr"."""

    stream: str
    data: bytes
    offset: int

    @property
    def text(self) -> str:
        """The bytes as text."""
        return self.data.decode(errors="replace")


def chunk_of(stream: str, event: Mapping[str, Any]) -> Chunk:
    data = base64.b64decode(event["base64"]) if "base64" in event else str(event["text"]).encode()
    return Chunk(stream, data, int(event["offset"]))


class FileInfo:
    """A file: `path`, `name`, `type` ("file", "directory", "link", …), `size` in bytes, `mode` as a
    number, `modified` as the daemon writes times; `raw` has the rest."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.path = str(document["path"])
        self.name = os.path.basename(self.path.rstrip("/"))
        self.type = str(document["type"])
        self.size = int(document["size"])
        self.mode = int(str(document["mode"]), 8)
        self.modified = str(document["modified"] or "")

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.type == "file"

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.type == "directory"

    def __repr__(self) -> str:
        return f"<FileInfo {self.path} {self.type} {self.size}>"


class FileChange(NamedTuple):
    """A change that a watch has seen: `type` is "created", "modified", "written", "deleted", "moved_from", "moved_to",
    "attributes", or "overflow" when changes were missed."""

    type: str
    path: str
    is_directory: bool


class GrepMatch(NamedTuple):
    """A line that was found; `is_match` is False for lines of the context around one."""

    path: str
    line: int
    text: str
    is_match: bool


class Event:
    """Something that happened: `type` ("session.created"), `sequence` (its number), `time`, `session_id`, `data`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.type = str(document["type"])
        self.sequence = int(document["sequence"])
        self.session_id = str(document.get("session_id") or "")
        self.time = str(document.get("time") or "")
        self.data: Dict[str, Any] = dict(document.get("data") or {})

    def __repr__(self) -> str:
        return f"<Event {self.sequence} {self.type} {self.session_id}>"


class ToolResult:
    """The result of a tool: `text` for the model, `is_error`, `structured` for programs, and all of its `content`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.content: List["types.ToolContent"] = list(document.get("content") or [])
        self.is_error = bool(document.get("is_error"))
        self.structured: Dict[str, Any] = dict(document.get("structured") or {})

    @property
    def text(self) -> str:
        """All parts that are text."""
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")

    def __repr__(self) -> str:
        return f"<ToolResult {'error' if self.is_error else 'ok'} {self.text[:40]!r}>"


class CodeValue:
    """A value of code: of its last expression (`is_main`), or a displayed one. `data` has it by media type."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.is_main = document.get("type") == "result"
        self.data: Dict[str, Any] = dict(document.get("data") or {})

    def _text(self, media: str) -> Optional[str]:
        value = self.data.get(media)
        return value if value is None or isinstance(value, str) else json.dumps(value)

    def _bytes(self, media: str) -> Optional[bytes]:
        value = self.data.get(media)
        return base64.b64decode(value) if isinstance(value, str) else None

    @property
    def text(self) -> Optional[str]:
        """As plain text."""
        return self._text("text/plain")

    @property
    def html(self) -> Optional[str]:
        """As HTML."""
        return self._text("text/html")

    @property
    def markdown(self) -> Optional[str]:
        """As Markdown."""
        return self._text("text/markdown")

    @property
    def latex(self) -> Optional[str]:
        """As LaTeX."""
        return self._text("text/latex")

    @property
    def svg(self) -> Optional[str]:
        """As an SVG image."""
        return self._text("image/svg+xml")

    @property
    def json(self) -> Any:
        """As a JSON value."""
        return self.data.get("application/json")

    @property
    def png(self) -> Optional[bytes]:
        """The bytes of a PNG image."""
        return self._bytes("image/png")

    @property
    def jpeg(self) -> Optional[bytes]:
        """The bytes of a JPEG image."""
        return self._bytes("image/jpeg")

    @property
    def formats(self) -> List[str]:
        """The media types that there are."""
        return list(self.data)

    def __repr__(self) -> str:
        return f"<CodeValue {', '.join(self.data)} {(self.text or '')[:40]!r}>"


class CodeError(NamedTuple):
    """An exception of code: its class, its text, the calls that had not returned, and all of that as it is printed."""

    name: str
    value: str
    frames: List["types.RunFrame"]
    traceback: str


def code_error(document: Mapping[str, Any]) -> CodeError:
    return CodeError(str(document.get("name") or ""), str(document.get("value") or ""), list(document.get("frames") or []),
                     str(document.get("traceback") or ""))


class CodeResult:
    """Code that has run in a context: `stdout`, `stderr`, `results` (values and displays), `error` (an exception, or None).

    `state` is "ok", "error", "interrupted", "timeout", "crashed", "cancelled" or "failed". `context_lost` says that the
    variables are gone.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.state = str(document.get("state") or "")
        self.stdout = str(document.get("stdout") or "")
        self.stderr = str(document.get("stderr") or "")
        self.results = [CodeValue(value) for value in document.get("results") or []]
        error = document.get("error")
        self.error: Optional[CodeError] = code_error(error) if isinstance(error, dict) else None
        self.number = int(document.get("number") or 0)
        self.duration = float(document.get("duration_seconds") or 0.0)
        self.context_lost = bool(document.get("context_lost"))
        self.truncated = bool(document.get("truncated"))

    @property
    def ok(self) -> bool:
        """Whether it ran to its end without an exception."""
        return self.state == "ok"

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression as text; None without one."""
        main = [value for value in self.results if value.is_main]
        return main[-1].text if main else None

    @property
    def images(self) -> List[bytes]:
        """The PNG images that were displayed, in order."""
        return [value.png for value in self.results if value.png is not None]

    def check(self) -> "CodeResult":
        """Itself if it is `ok`; raises `CodeFailed` otherwise."""
        if self.ok:
            return self
        why = f"{self.error.name}: {self.error.value}" if self.error else str(self.raw.get("cause") or self.state)
        raise CodeFailed(why, self)

    def __repr__(self) -> str:
        why = f" {self.error.name}: {self.error.value[:80]}" if self.error else ""
        said = last_line(self.stderr)
        return f"<CodeResult {self.state}{why} text={(self.text or '')[:40]!r}{f' stderr={said!r}' if said else ''}>"
