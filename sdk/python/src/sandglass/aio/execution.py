# SPDX-License-Identifier: Apache-2.0
"""Programs in a session: what they returned, and handles of those that run."""
from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Mapping, Optional, Union

from ..errors import Conflict, Unavailable
from ..models import ENDED, Chunk, ResultBase, chunk_of
from ._flow import Callback, sleep, tell
from ._transport import FOREVER, AsyncAnswer

if TYPE_CHECKING:
    from .. import types
    from .session import AsyncSession

WAIT_SECONDS = 60
LOST_SECONDS = 30.0


class AsyncResult(ResultBase):
    """An execution that has ended, see `ResultBase`; `output()` gives every byte of what it wrote."""

    def __init__(self, session: "AsyncSession", document: Mapping[str, Any]) -> None:
        super().__init__(document)
        self.session = session

    async def output(self, stream: str = "stdout", offset: int = 0) -> bytes:
        """Every byte that was written to "stdout" or "stderr", from `offset` on."""
        return await self.session.execution(self.id).output(offset, stream=stream)


class AsyncStdin:
    """The input of a running program that was started with `stdin=True`."""

    def __init__(self, process: "AsyncProcess") -> None:
        self._process = process

    async def write(self, data: Union[str, bytes]) -> int:
        """Returns when the program's pipe has taken all of it; a program that reads slowly slows us down."""
        return await self._send(data.encode() if isinstance(data, str) else data, eof=False)

    async def close(self) -> None:
        """The program reads the end of its input."""
        await self._send(b"", eof=True)

    async def _send(self, data: bytes, eof: bool) -> int:
        answer = await self._process.session.transport.open(
            "POST", self._process.path + "/stdin", [("eof", 1 if eof else None)], data,
            {"Content-Type": "application/octet-stream"}, timeout=FOREVER)
        return int(json.loads(await answer.read() or b"{}").get("written", len(data)))


class AsyncProcess:
    """An execution by its id: started by `Session.start`, or any other that the daemon knows."""

    def __init__(self, session: "AsyncSession", document: Mapping[str, Any]) -> None:
        self.session = session
        self.raw: Dict[str, Any] = dict(document)
        self.id = str(document["id"])
        self.path = f"{session.path}/executions/{self.id}"
        self.stdin = AsyncStdin(self)

    async def refresh(self, wait: float = 0) -> "types.Execution":
        """The state of the execution now; with `wait`, at its end but not later than that many seconds."""
        query = [("wait_seconds", f"{wait:.3f}" if wait else None)]
        document: "types.Execution" = await self.session.transport.call("GET", self.path, query, timeout=wait + 60)
        self.raw = dict(document)
        return document

    @property
    def state(self) -> str:
        """As it was last seen; `refresh()` asks again."""
        return str(self.raw.get("state") or "")

    @property
    def has_ended(self) -> bool:
        """Whether it had ended when it was last seen."""
        return self.state in ENDED

    async def wait(self, timeout: Optional[float] = None) -> AsyncResult:
        """Its result, when it has ended. `TimeoutError` after `timeout` seconds: the program goes on then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - time.monotonic())
            await self.refresh(max(left, 0))
            if self.has_ended:
                return AsyncResult(self.session, self.raw)
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"execution {self.id} has not ended within {timeout} s")

    async def wait_for(self, *, output: Optional[str] = None, port: Optional[int] = None, stream: Optional[str] = None,
                       offset: Optional[int] = None, timeout: float = 30) -> "types.WaitResult":
        """Waits until it has written a text, or until something in the sandbox listens on a port; `met` says whether."""
        query = [("output", output), ("port", port), ("stream", stream), ("offset", offset), ("timeout_seconds", timeout)]
        met: "types.WaitResult" = await self.session.transport.call("GET", self.path + "/wait", query, timeout=timeout + 60)
        return met

    async def signal(self, signal: Union[int, str], tree: bool = False) -> None:
        """Sends it a signal, by number or name; with `tree` to all processes that it has started, too."""
        name = signal if isinstance(signal, str) else int(signal)
        await self.session.transport.call("POST", self.path + "/signal", body={"signal": name, "tree": tree})

    async def resize(self, columns: int, rows: int) -> None:
        """Changes the size of its terminal."""
        await self.session.transport.call("POST", self.path + "/resize", body={"cols": columns, "rows": rows})

    async def cancel(self) -> AsyncResult:
        """Ends it with its whole process tree; returns when it has ended."""
        self.raw = await self.session.transport.call("DELETE", self.path, timeout=FOREVER)
        return AsyncResult(self.session, self.raw)

    async def output(self, offset: int = 0, stream: str = "stdout") -> bytes:
        """The output so far, from `offset` on, counted from its first byte."""
        query = [("stream", stream), ("offset", offset)]
        return await (await self.session.transport.open("GET", self.path + "/output", query)).read()

    async def follow(self, offset: int = 0, stream: str = "stdout") -> AsyncIterator[bytes]:
        """The output from `offset` on, as it comes, until the program has ended."""
        query = [("stream", stream), ("offset", offset), ("follow", 1)]
        answer = await self.session.transport.open("GET", self.path + "/output", query, timeout=FOREVER)
        async for piece in answer.pieces():
            yield piece

    async def attach(self, stdout: int = 0, stderr: int = 0) -> "AsyncStream":
        """Its output as it comes, from these offsets on. Leaving it does not cancel the program."""
        return await AsyncStream.attached(self, {"stdout": stdout, "stderr": stderr})

    async def write(self, data: Union[str, bytes]) -> int:
        """As `stdin.write()`."""
        return await self.stdin.write(data)

    async def close_stdin(self) -> None:
        """As `stdin.close()`."""
        await self.stdin.close()

    def __repr__(self) -> str:
        return f"<Process {self.id} {self.state}>"


class AsyncStream:
    """The output of a program while it runs: an iterator of `Chunk`.

    Leaving a stream of `Session.stream` early (`close()`, or the end of its `with`) cancels the program. A connection that
    breaks is taken up again where it was, so that no byte is missing or doubled while the daemon is replaced.
    """

    def __init__(self, session: "AsyncSession", answer: Optional[AsyncAnswer], process: "AsyncProcess",
                 offsets: Optional[Dict[str, int]] = None) -> None:
        self._session = session
        self._answer = answer
        self._closed = False
        self._result: Optional[AsyncResult] = None
        self.offsets = offsets or {"stdout": 0, "stderr": 0}
        self.process = process
        self._chunks = self._read()

    @classmethod
    async def attached(cls, process: "AsyncProcess", offsets: Dict[str, int]) -> "AsyncStream":
        return cls(process.session, None, process, offsets)

    def __aiter__(self) -> "AsyncStream":
        return self

    async def __anext__(self) -> Chunk:
        return await self._chunks.__anext__()

    async def wait(self) -> AsyncResult:
        """Reads to the end and returns the result."""
        async for _ in self._chunks:
            pass
        if self._result is None:
            self._result = await self.process.wait()
        return self._result

    async def tell(self, on_stdout: Optional[Callback], on_stderr: Optional[Callback]) -> AsyncResult:
        """Calls back with each text of the output; returns the result."""
        async for chunk in self._chunks:
            await tell(on_stdout if chunk.stream == "stdout" else on_stderr, chunk.text)
        return await self.wait()

    async def close(self) -> None:
        """Hangs up; a program that `Session.stream` has started and that still runs is cancelled."""
        self._closed = True
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _read(self) -> AsyncIterator[Chunk]:
        lost_since: Optional[float] = None
        while self._result is None and not self._closed:
            try:
                if self._answer is None:
                    await self._take_up()
                async for chunk in self._read_events():
                    lost_since = None
                    yield chunk
            except Conflict:  # it ended a while ago
                async for chunk in self._read_rest():
                    yield chunk
            except Unavailable:
                lost_since = lost_since or time.monotonic()
                if self._closed:
                    return
                if time.monotonic() - lost_since > LOST_SECONDS:
                    raise
                await sleep(0.1)
            finally:
                self._drop()

    def _drop(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    async def _take_up(self) -> None:
        query = [(stream, offset) for stream, offset in self.offsets.items()]
        self._answer = await self._session.transport.open("GET", self.process.path + "/stream", query,
                                                          headers={"Accept": "text/event-stream"}, timeout=FOREVER)

    async def _read_events(self) -> AsyncIterator[Chunk]:
        answer = self._answer
        if answer is None:
            return
        async for name, data, _ in answer.events():
            if name in self.offsets:
                chunk = chunk_of(name, json.loads(data))
                self.offsets[name] = chunk.offset + len(chunk.data)
                yield chunk
            elif name == "exit":
                await self.process.refresh()
                self._result = AsyncResult(self._session, self.process.raw)

    async def _read_rest(self) -> AsyncIterator[Chunk]:
        for stream, offset in list(self.offsets.items()):
            data = await self.process.output(offset, stream)
            self.offsets[stream] += len(data)
            if data:
                yield Chunk(stream, data, offset)
        await self.process.refresh()
        self._result = AsyncResult(self._session, self.process.raw)


class AsyncPty(AsyncStream):
    """A program with a terminal: what it prints is iterated over, `write()` types. Leaving it ends the program."""

    async def __aenter__(self) -> "AsyncPty":
        return self

    async def write(self, data: Union[str, bytes]) -> int:
        """Types something: lines end with "\\n" here."""
        return await self.process.stdin.write(data)

    async def resize(self, columns: int, rows: int) -> None:
        """Changes the size of the terminal."""
        await self.process.resize(columns, rows)

    async def kill(self) -> AsyncResult:
        """Ends the program."""
        return await self.process.cancel()
