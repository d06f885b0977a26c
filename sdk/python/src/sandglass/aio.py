"""The same for asyncio.

Requests run on threads of their own, as many as are needed at once, so that the loop never waits and output really
streams. Cancelling a task that waits for a program cancels the program.
"""
from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Callable, Dict, IO, Iterator, List, Mapping, Optional, TypeVar, Union

from .approval import Approval
from .client import Client
from .execution import Argv, Chunk, Process, Result, Stream
from .files import FileInfo
from .scope import Scope
from .session import Event, Session, ToolResult

T = TypeVar("T")

THREADS = 512

_END = object()


class _Runner:
    """Threads for requests: made when needed, idle ones are used again."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sandglass")

    async def __call__(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, functools.partial(function, *args, **options))

    async def iterate(self, items: Iterator[T], close: Callable[[], Any]) -> AsyncIterator[T]:
        try:
            while True:
                item = await self(next, items, _END)
                if item is _END:
                    return
                yield item
        finally:
            close()

    def shutdown(self) -> None:
        self._pool.shutdown(wait=False)


def _next_chunk(stream: Stream) -> Optional[Chunk]:
    return next(stream, None)


class AsyncProcess:
    """As `Process`."""

    def __init__(self, runner: _Runner, process: Process) -> None:
        self._run = runner
        self.sync = process
        self.id = process.id

    async def wait(self, timeout: Optional[float] = None) -> Result:
        return await self._run(self.sync.wait, timeout)

    async def write(self, data: Union[str, bytes]) -> int:
        """Its input; it was started with `stdin=True`."""
        return await self._run(self.sync.stdin.write, data)

    async def close_stdin(self) -> None:
        await self._run(self.sync.stdin.close)

    async def signal(self, signal: Union[int, str], tree: bool = False) -> None:
        await self._run(self.sync.signal, signal, tree)

    async def cancel(self) -> Result:
        return await self._run(self.sync.cancel)

    async def output(self, offset: int = 0, stream: str = "stdout") -> bytes:
        return await self._run(self.sync.output, offset, stream)


class AsyncStream:
    """As `Stream`: an asynchronous iterator of `Chunk`."""

    def __init__(self, runner: _Runner, stream: Stream) -> None:
        self._run = runner
        self.sync = stream
        self.process = AsyncProcess(runner, stream.process)

    def __aiter__(self) -> "AsyncStream":
        return self

    async def __anext__(self) -> Chunk:
        chunk: Optional[Chunk] = await self._run(_next_chunk, self.sync)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def wait(self) -> Result:
        return await self._run(self.sync.wait)

    async def close(self) -> None:
        self.sync.close()

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncFiles:
    """As `Files`."""

    def __init__(self, runner: _Runner, session: Session) -> None:
        self._run = runner
        self._files = session.files

    async def read(self, path: str) -> bytes:
        return await self._run(self._files.read, path)

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return await self._run(self._files.read_text, path, encoding)

    async def write(self, path: str, data: Union[str, bytes, IO[bytes]], mode: Optional[int] = None) -> None:
        await self._run(self._files.write, path, data, mode)

    async def list(self, path: str = ".", depth: int = 1) -> List[FileInfo]:
        return await self._run(self._files.list, path, depth)

    async def stat(self, path: str) -> FileInfo:
        return await self._run(self._files.stat, path)

    async def exists(self, path: str) -> bool:
        return await self._run(self._files.exists, path)

    async def remove(self, path: str, recursive: bool = False) -> None:
        await self._run(self._files.remove, path, recursive)

    async def mkdir(self, path: str) -> None:
        await self._run(self._files.mkdir, path)

    async def move(self, source: str, target: str, replace: bool = False) -> None:
        await self._run(self._files.move, source, target, replace)


class AsyncSession:
    """As `Session`; `async with` deletes it at the end."""

    def __init__(self, runner: _Runner, session: Session) -> None:
        self._run = runner
        self.sync = session
        self.id = session.id
        self.files = AsyncFiles(runner, session)

    @property
    def raw(self) -> Dict[str, Any]:
        return self.sync.raw

    async def run(self, program: Argv, **options: Any) -> Result:
        """As `Session.run`. A cancelled task cancels the program."""
        check = options.pop("check", False)
        process = await self._run(self.sync.start, program, **options)
        try:
            result = await self._run(process.wait)
        except asyncio.CancelledError:
            asyncio.get_running_loop().run_in_executor(None, process.cancel)
            raise
        return result.check() if check else result

    async def execute(self, code: str, language: str = "python", **options: Any) -> Result:
        return await self._run(self.sync.execute, code, language, **options)

    async def stream(self, program: Argv, **options: Any) -> AsyncStream:
        return AsyncStream(self._run, await self._run(self.sync.stream, program, **options))

    async def start(self, program: Argv, **options: Any) -> AsyncProcess:
        return AsyncProcess(self._run, await self._run(self.sync.start, program, **options))

    async def refresh(self) -> Dict[str, Any]:
        return await self._run(self.sync.refresh)

    async def keepalive(self, timeout: Optional[float] = None, exact: bool = False) -> Dict[str, Any]:
        return await self._run(self.sync.keepalive, timeout, exact)

    async def pause(self) -> Dict[str, Any]:
        return await self._run(self.sync.pause)

    async def resume(self) -> Dict[str, Any]:
        return await self._run(self.sync.resume)

    async def teardown(self) -> Dict[str, Any]:
        return await self._run(self.sync.teardown)

    async def call_tool(self, name: str, arguments: Optional[Mapping[str, Any]] = None,
                        client: Optional[str] = None) -> ToolResult:
        return await self._run(self.sync.call_tool, name, arguments, client)

    async def sandbox(self, flavor: Optional[str] = None, **limits: Any) -> Optional[Approval]:
        """As `Session.sandbox`; `AsyncClient.wait_for_approval` waits for the decision."""
        return await self._run(self.sync.sandbox, flavor, **limits)

    async def budget(self) -> Dict[str, Any]:
        return await self._run(self.sync.budget)

    async def set_budget(self, cap_usd: Optional[float] = None, auto_approve: Optional[bool] = None) -> Dict[str, Any]:
        return await self._run(self.sync.set_budget, cap_usd, auto_approve)

    async def usage(self) -> Optional[Dict[str, Any]]:
        return await self._run(self.sync.usage)

    async def stored_files(self) -> List[Dict[str, Any]]:
        """As `Session.storage.list`."""
        return await self._run(self.sync.storage.list)

    async def read_stored(self, name: str) -> bytes:
        return await self._run(self.sync.storage.read, name)

    async def kept_files(self) -> List[Dict[str, Any]]:
        """As `Session.kept.list`."""
        return await self._run(self.sync.kept.list)

    async def read_kept(self, path: str) -> bytes:
        return await self._run(self.sync.kept.read, path)

    def events(self, after: Optional[int] = None, follow: bool = False) -> AsyncIterator[Event]:
        source = self.sync.events(after, follow)
        return self._run.iterate(source, lambda: None)

    async def delete(self) -> Dict[str, Any]:
        return await self._run(self.sync.delete)

    async def close(self) -> None:
        await self._run(self.sync.close)

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        # Also when this task is being cancelled: the session goes before we do.
        await asyncio.shield(self.close())


class AsyncScope:
    """As `Scope`; `async with` gives an `AsyncClient`."""

    def __init__(self, runner: _Runner, scope: Scope) -> None:
        self._run = runner
        self.sync = scope

    @property
    def destroyed(self) -> List[str]:
        return self.sync.destroyed

    async def __aenter__(self) -> "AsyncClient":
        return AsyncClient._around(await self._run(self.sync.open), self._run)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self._run(self.sync.close))


class AsyncClient:
    """As `Client`.

        async with AsyncClient() as client:
            async with await client.session() as session:
                async with await session.stream("make") as output:
                    async for chunk in output:
                        ...
    """

    def __init__(self, url: Optional[str] = None, api_key: Optional[str] = None, owner: Optional[str] = None) -> None:
        self._run = _Runner()
        self._owns_runner = True
        self.sync = Client(url, api_key, owner)

    @classmethod
    def _around(cls, client: Client, runner: _Runner) -> "AsyncClient":
        made = cls.__new__(cls)
        made._run = runner
        made._owns_runner = False
        made.sync = client
        return made

    @property
    def owner(self) -> str:
        return self.sync.owner

    async def session(self, **options: Any) -> AsyncSession:
        return AsyncSession(self._run, await self._run(self.sync.session, **options))

    async def attach(self, reference: str) -> AsyncSession:
        return AsyncSession(self._run, await self._run(self.sync.attach, reference))

    async def sessions(self, label: Union[Mapping[str, str], str, None] = None,
                       state: Optional[str] = None) -> List[AsyncSession]:
        return [AsyncSession(self._run, session) for session in await self._run(self.sync.sessions, label, state)]

    async def delete_all(self, label: Union[Mapping[str, str], str, None] = None) -> Dict[str, Any]:
        return await self._run(self.sync.delete_all, label)

    async def execute(self, code: str, language: str = "python", **options: Any) -> Result:
        return await self._run(self.sync.execute, code, language, **options)

    async def tools(self) -> List[Dict[str, Any]]:
        return await self._run(self.sync.tools)

    async def call_tool(self, name: str, arguments: Optional[Mapping[str, Any]] = None) -> ToolResult:
        return await self._run(self.sync.call_tool, name, arguments)

    async def flavors(self) -> List[Dict[str, Any]]:
        return await self._run(self.sync.flavors)

    async def approvals(self, state: Optional[str] = None, session: Optional[str] = None) -> List[Approval]:
        return await self._run(self.sync.approvals, state, session)

    async def wait_for_approval(self, approval: Approval, seconds: float) -> str:
        """Its state when it is decided, or after so many seconds."""
        return await self._run(approval.refresh, seconds)

    async def approve(self, approval: Approval, reason: Optional[str] = None, session: bool = False) -> str:
        return await self._run(approval.approve, reason, session)

    async def deny(self, approval: Approval, reason: Optional[str] = None) -> str:
        return await self._run(approval.deny, reason)

    async def budget(self, owner: Optional[str] = None) -> Dict[str, Any]:
        return await self._run(self.sync.budget, owner)

    async def set_budget(self, cap_usd: Optional[float], owner: Optional[str] = None) -> Dict[str, Any]:
        return await self._run(self.sync.set_budget, cap_usd, owner)

    def scope(self, owner: Optional[str] = None) -> AsyncScope:
        return AsyncScope(self._run, self.sync.scope(owner))

    async def whoami(self) -> Dict[str, Any]:
        return await self._run(self.sync.whoami)

    async def close(self) -> None:
        self.sync.close()
        if self._owns_runner:
            self._run.shutdown()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
