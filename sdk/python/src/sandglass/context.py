# Written by scripts/sdk from aio/context.py: do not edit.
# SPDX-License-Identifier: Apache-2.0
"""Contexts: interpreters that keep their variables from one run to the next, as a notebook does."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, cast

from .models import CodeResult, CodeValue, code_error, given
from ._flow import Callback, tell
from ._transport import FOREVER, Answer

if TYPE_CHECKING:
    from . import types
    from .session import Session


class Context:
    """An interpreter of a session. Made by `Session.context()`; removed at the end of its `with`."""

    def __init__(self, session: "Session", document: Mapping[str, Any]) -> None:
        self.session = session
        self.raw = cast("types.Context", dict(document))
        self.id = str(document["id"])
        self.path = f"{session.path}/contexts/{self.id}"

    @property
    def language(self) -> str:
        """The language that it runs."""
        return self.raw["language"]

    @property
    def state(self) -> str:
        """As it was last seen; `refresh()` asks again."""
        return self.raw["state"]

    def run(self, code: str, *, timeout: Optional[float] = None, on_stdout: Optional[Callback] = None,
                  on_stderr: Optional[Callback] = None, on_result: Optional[Callback] = None,
                  on_error: Optional[Callback] = None, check: bool = False) -> CodeResult:
        """Runs code and returns its output, its values and displays, and its exception, if any.

        Callbacks are called while it runs: `on_stdout` and `on_stderr` with text, `on_result` with a `CodeValue`, `on_error` with a
        `CodeError`. `check=True` raises `CodeFailed` unless it is ok. Leaving early cancels the code.
        """
        body = given({"code": code, "timeout_seconds": timeout, "cancel_on_disconnect": True})
        if on_stdout or on_stderr or on_result or on_error:
            answer = self.session.transport.open(
                "POST", self.path + "/run", (), json.dumps(body).encode(),
                {"Content-Type": "application/json", "Accept": "text/event-stream"}, timeout=FOREVER)
            try:
                document = self._follow(answer, {"stdout": on_stdout, "stderr": on_stderr, "result": on_result,
                                                       "display": on_result, "error": on_error})
            finally:
                answer.close()
        else:
            document = self.session.transport.call("POST", self.path + "/run", body=body, timeout=FOREVER)
        result = CodeResult(document)
        return result.check() if check else result

    @staticmethod
    def _follow(answer: Answer, callbacks: "Mapping[str, Optional[Callback]]") -> Dict[str, Any]:
        texts: Dict[str, List[str]] = {"stdout": [], "stderr": []}
        document: Dict[str, Any] = {"results": [], "error": None}
        for name, data, _ in answer.events():
            event = json.loads(data)
            if name in texts:
                texts[name].append(event["text"])
                tell(callbacks[name], event["text"])
            elif name in ("result", "display"):
                document["results"].append({"type": name, "data": event.get("data")})
                tell(callbacks[name], CodeValue(document["results"][-1]))
            elif name == "error":
                document["error"] = event
                tell(callbacks[name], code_error(event))
            elif name == "done":
                document.update(event)
        document.update({name: "".join(pieces) for name, pieces in texts.items()})
        return document

    def interrupt(self) -> None:
        """Interrupts the code that runs; variables stay."""
        self.raw = self.session.transport.call("POST", self.path + "/interrupt", body={})

    def restart(self) -> None:
        """A new interpreter: variables are gone."""
        self.raw = self.session.transport.call("POST", self.path + "/restart", body={})

    def refresh(self) -> "types.Context":
        """The state of the context now."""
        self.raw = self.session.transport.call("GET", self.path)
        return self.raw

    def remove(self) -> None:
        """Ends the interpreter and what runs in it."""
        self.raw = self.session.transport.call("DELETE", self.path)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Context {self.id} {self.language} {self.state}>"
