# SPDX-License-Identifier: Apache-2.0
"""Sandglass: sandboxes for untrusted programs.

    from sandglass import Client

    with Client().session() as session:
        print(session.run(["uname", "-a"]).stdout)
        session.run_code("x = 6")
        print(session.run_code("x * 7").text)

Everything of one owner is gone at the end of a `Client.scope()`. For asyncio there is `AsyncClient`; for pytest the
fixtures `sandbox`, `sandbox_session` and `sandglass_client` come with this package.
"""
from . import types
from .aio import (AsyncApproval, AsyncClient, AsyncContext, AsyncFiles, AsyncKept, AsyncProcess, AsyncPty, AsyncResult, AsyncScope,
                  AsyncSession, AsyncStdin, AsyncStorage, AsyncStream, AsyncWatch)
from .approval import Approval
from .client import Client
from .context import Context
from .errors import (BackendFailed, CodeFailed, Conflict, DiskFull, ExecutionFailed, FileNotFound, Forbidden, Gone, Invalid,
                     LimitReached, NotFound, NotReady, SandglassError, Unauthorized, Unavailable)
from .execution import Process, Pty, Result, Stdin, Stream
from .files import Files, Watch
from .models import Chunk, CodeError, CodeResult, CodeValue, Event, FileChange, FileInfo, GrepMatch, ResultBase, ToolResult
from .scope import Scope
from .session import Session
from .storage import Kept, Storage

AuthenticationError = Unauthorized

__version__ = "0.1.0"

__all__ = [
    "Approval", "AsyncApproval", "AsyncClient", "AsyncContext", "AsyncFiles", "AsyncKept", "AsyncProcess", "AsyncPty", "AsyncResult",
    "AsyncScope", "AsyncSession", "AsyncStdin", "AsyncStorage", "AsyncStream", "AsyncWatch", "AuthenticationError", "BackendFailed",
    "Chunk", "Client", "CodeError", "CodeFailed", "CodeResult", "CodeValue", "Conflict", "Context", "DiskFull", "Event",
    "ExecutionFailed", "FileChange", "FileInfo", "FileNotFound", "Files", "Forbidden", "Gone", "GrepMatch", "Invalid", "Kept",
    "LimitReached", "NotFound", "NotReady", "Process", "Pty", "Result", "ResultBase", "SandglassError", "Scope", "Session", "Stdin",
    "Storage", "Stream", "ToolResult", "Unauthorized", "Unavailable", "Watch", "types",
]
