"""Sandglass: sandboxes for untrusted programs.

    from sandglass import Client

    with Client().session() as session:
        print(session.run(["uname", "-a"]).stdout)
        print(session.execute("print(6 * 7)").stdout)

Everything of one owner is gone at the end of a `Client.scope()`. For asyncio there is `AsyncClient`; for pytest the
fixtures `sandbox`, `sandbox_session` and `sandglass_client` come with this package.
"""
from .aio import AsyncClient, AsyncProcess, AsyncScope, AsyncSession, AsyncStream
from .approval import Approval
from .client import Client
from .errors import (BackendFailed, Conflict, ExecutionFailed, Forbidden, Gone, Invalid, LimitReached, NotFound, NotReady,
                     SandglassError, Unauthorized, Unavailable)
from .execution import Chunk, Process, Result, Stream
from .files import FileInfo, Files
from .scope import Scope
from .session import Event, Session, ToolResult
from .storage import Kept, Storage

__version__ = "0.1.0"

__all__ = [
    "Approval", "AsyncClient", "AsyncProcess", "AsyncScope", "AsyncSession", "AsyncStream", "BackendFailed", "Chunk",
    "Client", "Conflict", "Event", "ExecutionFailed", "FileInfo", "Files", "Forbidden", "Gone", "Invalid", "Kept",
    "LimitReached", "NotFound", "NotReady", "Process", "Result", "SandglassError", "Scope", "Session", "Storage",
    "Stream", "ToolResult", "Unauthorized", "Unavailable",
]
