# SPDX-License-Identifier: Apache-2.0
"""Waiting and telling, for asyncio."""
from __future__ import annotations

import asyncio
import inspect
from typing import Any, Awaitable, Callable, Optional, TypeVar

T = TypeVar("T")

Callback = Callable[[Any], Any]


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def tell(callback: Optional[Callback], value: Any) -> None:
    """Calls back, if there is anything to call; what it returns may be awaited."""
    if callback is not None:
        result = callback(value)
        if inspect.isawaitable(result):
            await result


async def shielded(work: Awaitable[T]) -> T:
    """Lets it end, also when this task is being cancelled."""
    return await asyncio.shield(work)
