# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: the same calls as the plain one, to be awaited. No threads are used."""
from .approval import AsyncApproval
from .client import AsyncClient
from .context import AsyncContext
from .execution import AsyncProcess, AsyncPty, AsyncResult, AsyncStdin, AsyncStream
from .files import AsyncFiles, AsyncWatch
from .scope import AsyncScope
from .session import AsyncSession
from .storage import AsyncKept, AsyncStorage

__all__ = [
    "AsyncApproval", "AsyncClient", "AsyncContext", "AsyncFiles", "AsyncKept", "AsyncProcess", "AsyncPty", "AsyncResult",
    "AsyncScope", "AsyncSession", "AsyncStdin", "AsyncStorage", "AsyncStream", "AsyncWatch",
]
