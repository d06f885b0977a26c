# SPDX-License-Identifier: Apache-2.0
"""Approvals: a sandbox that costs something waits until a person decides."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, cast

from ..models import given
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from .. import types


class AsyncApproval:
    """A question to the person who pays. `state` is "pending", "approved", "denied", "expired" or "cancelled"; `raw` is all
    that is known of it, as it was last seen."""

    def __init__(self, transport: AsyncTransport, document: Mapping[str, Any]) -> None:
        self._transport = transport
        self.raw = cast("types.Approval", dict(document))
        self.id = str(document["id"])

    def __repr__(self) -> str:
        return f"<Approval {self.id} {self.flavor} {self.state}>"

    @property
    def state(self) -> str:
        """As it was last seen; `refresh()` asks again."""
        return str(self.raw.get("state"))

    @property
    def session_id(self) -> str:
        """The session that it is for."""
        return str(self.raw.get("session"))

    @property
    def flavor(self) -> str:
        """The flavor that was asked for."""
        return str(self.raw.get("flavor"))

    @property
    def question(self) -> str:
        """Why a person is asked."""
        return str(self.raw.get("question") or "")

    @property
    def result(self) -> Optional[str]:
        """The text for the caller who asked; None while the approval is pending."""
        return self.raw.get("result")

    async def refresh(self, wait: float = 0) -> str:
        """Its state now, or when it is decided, after `wait` seconds at most."""
        self.raw = await self._transport.call("GET", f"/approvals/{self.id}", [("wait_seconds", wait or None)], timeout=wait + 60)
        return self.state

    async def approve(self, reason: Optional[str] = None, session: bool = False) -> str:
        """For one sandbox, or with `session` for all of this flavor in the session."""
        return await self._decide({"decision": "approve", "reason": reason, "session": session or None})

    async def deny(self, reason: Optional[str] = None) -> str:
        """Refuses it; `reason` is shown to the caller who asked."""
        return await self._decide({"decision": "deny", "reason": reason})

    async def _decide(self, body: Mapping[str, Any]) -> str:
        self.raw = await self._transport.call("POST", f"/approvals/{self.id}", body=given(body))
        return self.state
