# SPDX-License-Identifier: Apache-2.0
"""Waiting and telling, for the plain client; aio/_flow.py is the same for asyncio."""
from __future__ import annotations

import time
from typing import Any, Callable, Optional

Callback = Callable[[Any], Any]


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def tell(callback: Optional[Callback], value: Any) -> None:
    """Calls back, if there is anything to call."""
    if callback is not None:
        callback(value)
