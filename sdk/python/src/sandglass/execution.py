"""Programs in a session: what they returned, and handles of those that run."""
from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from ._sse import read_events
from ._transport import Answer
from .errors import ExecutionFailed, Unavailable

if TYPE_CHECKING:
    from .session import Session

Argv = Union[str, Sequence[str]]

WAIT_SECONDS = 60
LOST_SECONDS = 30.0


def request_body(program: Argv, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The body of an execution: a list is an argv, a text is a line for the shell. None is "not given"."""
    body = {name: value for name, value in options.items() if value is not None}
    if isinstance(program, str):
        body["command"] = program
    else:
        body["argv"] = [str(word) for word in program]
    return body


class Result:
    """An execution that has ended.

    `state` is "exited", "timeout", "output_limit", "cancelled" or "crashed". `exit_code` is None when a signal ended it: then `signal`
    has its number. `stdout` and `stderr` are text, with U+FFFD for bytes that are not UTF-8, and hold the beginning
    and the end of a long output (`truncated`); `output()` gives every byte of it.
    """

    def __init__(self, session: "Session", document: Mapping[str, Any]) -> None:
        self.session = session
        self.raw: Dict[str, Any] = dict(document)
        self.id = str(document.get("id") or document.get("execution_id") or "")
        self.state = str(document.get("state") or "")
        self.exit_code: Optional[int] = document.get("exit_code")
        self.signal: Optional[int] = document.get("signal")
        self.reason = str(document.get("reason") or "")
        self.error = str(document.get("error") or "")
        self.stdout = str(document.get("stdout") or "")
        self.stderr = str(document.get("stderr") or "")
        self.truncated = bool(document.get("truncated"))
        self.duration = float(document.get("duration_seconds") or 0.0)
        self.files_were_reset = bool(document.get("files_were_reset"))
        self.reset_reason = str(document.get("reset_reason") or "")
        self.output_files: List[str] = [str(name) for name in document.get("output_files") or []]
        self.session_files: List[Dict[str, Any]] = list(document.get("session_files") or [])

    @property
    def ok(self) -> bool:
        return self.state == "exited" and self.exit_code == 0

    def check(self) -> "Result":
        """Itself if it ended with exit code 0; raises `ExecutionFailed` otherwise."""
        if self.ok:
            return self
        how = f"exit code {self.exit_code}" if self.exit_code is not None else f"signal {self.signal}"
        if self.state != "exited":
            how = f"{self.state} {self.reason or self.error}".strip()
        raise ExecutionFailed(f"execution {self.id}: {how}\n{self.stderr[-2000:]}".rstrip(), self)

    def output(self, stream: str = "stdout", offset: int = 0) -> bytes:
        """Every byte that was written to "stdout" or "stderr", from `offset` on."""
        return self.session.execution(self.id).output(offset, stream=stream)

    def __repr__(self) -> str:
        return f"<Result {self.id} {self.state} exit_code={self.exit_code} signal={self.signal}>"


class Stdin:
    """The input of a running program that was started with `stdin=True`."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def write(self, data: Union[str, bytes]) -> int:
        """Returns when the program's pipe has taken all of it; a program that reads slowly slows us down."""
        return self._send(data.encode() if isinstance(data, str) else data, eof=False)

    def close(self) -> None:
        """The program reads the end of its input."""
        self._send(b"", eof=True)

    def _send(self, data: bytes, eof: bool) -> int:
        answer = self._process.session.transport.open(
            "POST", self._process.path + "/stdin", [("eof", 1 if eof else None)], data,
            {"Content-Type": "application/octet-stream"})
        return int(json.loads(answer.read() or b"{}").get("written", len(data)))


class Process:
    """An execution by its id: one that `Session.start` has begun, or any that the daemon knows."""

    def __init__(self, session: "Session", document: Mapping[str, Any]) -> None:
        self.session = session
        self.raw: Dict[str, Any] = dict(document)
        self.id = str(document["id"])
        self.path = f"{session.path}/executions/{self.id}"
        self.stdin = Stdin(self)

    def refresh(self, wait: float = 0) -> Dict[str, Any]:
        """What the daemon knows of it now; with `wait`, at its end but not later than that many seconds."""
        query = [("wait", f"{wait:.3f}" if wait else None)]
        self.raw = self.session.transport.call("GET", self.path, query, timeout=wait + 60)
        return self.raw

    @property
    def state(self) -> str:
        """As it was last seen; `refresh()` asks again."""
        return str(self.raw.get("state") or "")

    @property
    def has_ended(self) -> bool:
        return self.state in ("exited", "timeout", "output_limit", "cancelled", "crashed")

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Its result, when it has ended. `TimeoutError` after `timeout` seconds: the program goes on then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - time.monotonic())
            self.refresh(max(left, 0))
            if self.has_ended:
                return Result(self.session, self.raw)
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"execution {self.id} has not ended within {timeout} s")

    def signal(self, signal: Union[int, str], tree: bool = False) -> None:
        """Sends it a signal, by number or name; with `tree` to all processes that it has started, too."""
        name = signal if isinstance(signal, str) else int(signal)
        self.session.transport.call("POST", self.path + "/signal", body={"signal": name, "tree": tree})

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size of its terminal."""
        self.session.transport.call("POST", self.path + "/resize", body={"cols": columns, "rows": rows})

    def cancel(self) -> Result:
        """Ends it with its whole process tree; returns when it has ended."""
        self.raw = self.session.transport.call("DELETE", self.path)
        return Result(self.session, self.raw)

    def output(self, offset: int = 0, stream: str = "stdout") -> bytes:
        """What it has written so far, from `offset` on, counted from its first byte."""
        answer = self.session.transport.open("GET", self.path + "/output", [("stream", stream), ("offset", offset)])
        return answer.read()

    def follow(self, offset: int = 0, stream: str = "stdout") -> Iterator[bytes]:
        """What it writes from `offset` on, as it comes, until it has ended."""
        query = [("stream", stream), ("offset", offset), ("follow", 1)]
        return self.session.transport.open("GET", self.path + "/output", query).pieces()

    def __repr__(self) -> str:
        return f"<Process {self.id} {self.state}>"


class Chunk(NamedTuple):
    """Some bytes of an output, exactly as the program wrote them."""

    stream: str
    data: bytes
    offset: int

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


class Stream:
    """The output of a program while it runs: an iterator of `Chunk`.

    Leaving it early (`close()`, or the end of its `with`) cancels the program. A connection that breaks is taken up
    again where it was, so that no byte is missing or doubled while the daemon is replaced.
    """

    def __init__(self, session: "Session", answer: Answer) -> None:
        self._session = session
        self._answer: Optional[Answer] = answer
        self._result: Optional[Result] = None
        self._offsets = {"stdout": 0, "stderr": 0}
        self.process = Process(session, {"id": answer.headers["x-sandglass-execution-id"]})
        self._chunks = self._read(answer)

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def wait(self) -> Result:
        """Reads to the end and returns the result."""
        for _ in self._chunks:
            pass
        if self._result is None:
            self._result = self.process.wait()
        return self._result

    def close(self) -> None:
        """Hangs up; a program that still runs is cancelled. Another thread may be reading meanwhile."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, answer: Answer) -> Iterator[Chunk]:
        try:
            for name, data in read_events(answer):
                if name == "exit":
                    self.process.raw = json.loads(data)
                    self._result = Result(self._session, self.process.refresh())
                elif name in self._offsets:
                    yield self._chunk(name, json.loads(data))
        except Unavailable:
            pass
        if self._result is None and self._answer is not None:
            yield from self._catch_up()

    def _chunk(self, stream: str, event: Mapping[str, Any]) -> Chunk:
        data = base64.b64decode(event["base64"]) if "base64" in event else str(event["text"]).encode()
        offset = int(event["offset"])
        self._offsets[stream] = offset + len(data)
        return Chunk(stream, data, offset)

    def _catch_up(self) -> Iterator[Chunk]:
        """The rest, by offset, after the event stream has broken."""
        lost_since: Optional[float] = None
        while self._result is None and self._answer is not None:
            try:
                ended = self.process.refresh(1) and self.process.has_ended
                for stream in self._offsets:
                    offset = self._offsets[stream]
                    data = self.process.output(offset, stream)
                    self._offsets[stream] += len(data)
                    if data:
                        yield Chunk(stream, data, offset)
                lost_since = None
                if ended:
                    self._result = Result(self._session, self.process.raw)
            except Unavailable:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_SECONDS:
                    raise
                time.sleep(0.1)
