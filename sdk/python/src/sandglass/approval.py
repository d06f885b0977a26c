"""Approvals: a sandbox that costs something waits until a person decides."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ._transport import Transport


class Approval:
    """A question to whoever pays. `state` is "pending", "approved", "denied", "expired" or "cancelled"; `raw` is all that
    is known of it, as it was last seen."""

    def __init__(self, transport: Transport, document: Mapping[str, Any]) -> None:
        self._transport = transport
        self.raw: Dict[str, Any] = dict(document)
        self.id = str(document["id"])

    def __repr__(self) -> str:
        return f"<Approval {self.id} {self.flavor} {self.state}>"

    @property
    def state(self) -> str:
        return str(self.raw.get("state"))

    @property
    def session_id(self) -> str:
        return str(self.raw.get("session"))

    @property
    def flavor(self) -> str:
        return str(self.raw.get("flavor"))

    @property
    def question(self) -> str:
        """Why a person is asked."""
        return str(self.raw.get("question") or "")

    @property
    def result(self) -> Optional[str]:
        """What whoever asked is told; None while it is pending."""
        return self.raw.get("result")

    def refresh(self, wait: float = 0) -> str:
        """Its state now, or when it is decided, after `wait` seconds at most."""
        self.raw = self._transport.call("GET", f"/approvals/{self.id}", [("wait", wait or None)],
                                        timeout=wait + 60)
        return self.state

    def approve(self, reason: Optional[str] = None, session: bool = False) -> str:
        """For one sandbox, or with `session` for all of this flavor in the session."""
        return self._decide("approve", reason, session=session or None)

    def deny(self, reason: Optional[str] = None) -> str:
        return self._decide("deny", reason)

    def _decide(self, decision: str, reason: Optional[str], **scope: Optional[bool]) -> str:
        body = {"decision": decision, "reason": reason, **scope}
        self.raw = self._transport.call("POST", f"/approvals/{self.id}",
                                        body={name: value for name, value in body.items() if value is not None})
        return self.state
