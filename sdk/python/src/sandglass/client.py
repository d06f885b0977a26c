"""The way in: a daemon, and on whose behalf it is asked."""
from __future__ import annotations

import os
import secrets
from typing import Any, Dict, Iterator, List, Mapping, Optional, Union

from ._transport import Transport, default_url, local_token
from .approval import Approval
from .execution import Result
from .scope import Scope
from .session import Event, Session, ToolResult, read_event_route

Labels = Mapping[str, str]


def _label_query(label: Union[Labels, str, None]) -> "list[tuple[str, Any]]":
    if label is None:
        return []
    if isinstance(label, str):
        return [("label", label)]
    return [("label", f"{name}={value}") for name, value in label.items()]


class Client:
    """A daemon of Sandglass.

    `url` is `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`; without it `SANDGLASS_URL`, else the default
    socket. `api_key` (or `SANDGLASS_API_KEY`) proves who asks; `owner` (or `SANDGLASS_ON_BEHALF_OF`) says for whom.
    May be shared by threads; connections are kept and used again.
    """

    def __init__(self, url: Optional[str] = None, api_key: Optional[str] = None, owner: Optional[str] = None) -> None:
        self.url = url or default_url()
        self.owner = owner if owner is not None else os.environ.get("SANDGLASS_ON_BEHALF_OF", "")
        self._api_key = api_key if api_key is not None else os.environ.get("SANDGLASS_API_KEY", "")
        headers: Dict[str, str] = {}
        credentials = self._api_key or local_token(self.url)
        if credentials:
            headers["Authorization"] = f"Bearer {credentials}"
        if self.owner:
            headers["X-Sandglass-On-Behalf-Of"] = self.owner
        self.transport = Transport(self.url, headers)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.url} owner={self.owner!r}>"

    def close(self) -> None:
        """Closes idle connections. Sessions stay: they are the daemon's."""
        self.transport.close()

    def with_owner(self, owner: str) -> "Client":
        """The same daemon with the same key, for another owner."""
        return Client(self.url, self._api_key, owner)

    # --- sessions -----------------------------------------------------------------------------------

    def session(self, **options: Any) -> Session:
        """Opens a session; use it as a context manager, and it is deleted whatever happens.

            with client.session(memory="512m", labels={"run": "7"}) as session:
                print(session.run("uname -a").stdout)

        Options are those of the API: `key`, `template`, `flavor`, `backend`, `labels`, `env`, `secrets`, `memory`,
        `cpus`, `pids`, `disk`, `network`, `timeout` (lease), `idle_timeout`, `max_lifetime`, `on_timeout`, `preload`,
        `auto_restart`, `auto_resume`. A `key` that has a session already returns that one.
        """
        body = {name: value for name, value in options.items() if value is not None}
        document = self.transport.call("POST", "/sessions", body=body, repeatable=True,
                                       headers={"Idempotency-Key": secrets.token_hex(16)})
        return Session(self, document)

    def attach(self, reference: str) -> Session:
        """A session that exists, by its id or by "key:KEY"."""
        return Session(self, self.transport.call("GET", f"/sessions/{_quote(reference)}"))

    def sessions(self, label: Union[Labels, str, None] = None, state: Optional[str] = None,
                 owner: Optional[str] = None, usage: bool = False) -> List[Session]:
        """The caller's own sessions, with all these labels ("k=v" or a dictionary).

        With `usage` what each uses is measured, for `raw["usage"]`. An operator may ask for those of another `owner`, or
        of all with "*".
        """
        found: List[Session] = []
        cursor: Optional[str] = None
        while True:
            page = self.transport.call("GET", "/sessions", [*_label_query(label), ("state", state), ("limit", 1000),
                                                            ("cursor", cursor), ("owner", owner),
                                                            ("usage", 1 if usage else None)])
            found += [Session(self, document) for document in page["sessions"]]
            cursor = page.get("next_cursor")
            if not cursor:
                return found

    def delete_all(self, label: Union[Labels, str, None] = None, idle_longer_than: Optional[float] = None,
                   dry_run: bool = False, owner: Optional[str] = None) -> Dict[str, Any]:
        """Ends all of the caller's sessions, or those with a label; all are gone when it returns. For an operator also
        those of another `owner`, or of all with "*".

        The answer has `destroyed` (ids), `failed` and `skipped`.
        """
        query = [*_label_query(label), ("idle_longer_than", idle_longer_than), ("dry_run", 1 if dry_run else None),
                 ("owner", owner)]
        answer: Dict[str, Any] = self.transport.call("DELETE", "/sessions", query)
        return answer

    def execute(self, code: str, language: str = "python", *, session_id: Optional[str] = None,
                key: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
                secrets: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None) -> Result:
        """Runs code in one call. The session is made on demand and stays: `result.session`."""
        given = dict(code=code, language=language, session_id=session_id, key=key, env=env,
                     secrets=secrets, timeout=timeout)
        document = self.transport.call("POST", "/execute",
                                       body={name: value for name, value in given.items() if value is not None})
        return Result(Session(self, {"id": document["session_id"]}), document)

    def scope(self, owner: Optional[str] = None) -> Scope:
        """An owner for a while: what is made in the scope is destroyed at its end, and nothing else.

            with client.scope() as scoped:
                session = scoped.session()

        The owner is new and not guessable unless one is given. The daemon watches a lease meanwhile: should this
        process be killed, the sessions go all the same. See `Scope`.
        """
        return Scope(self, owner)

    # --- what models use, and what it costs -----------------------------------------------------------

    def tools(self) -> List[Dict[str, Any]]:
        """The tools of a model: hand `name`, `description` and `input_schema` to it, and its calls to `call_tool`."""
        tools: List[Dict[str, Any]] = self.transport.call("GET", "/tools")["tools"]
        return tools

    def call_tool(self, name: str, arguments: Optional[Mapping[str, Any]] = None) -> ToolResult:
        """Calls a tool that finds its session itself (`needs_session` is false); the others are `Session.call_tool`."""
        return ToolResult(self.transport.call("POST", f"/tools/{name}", body=dict(arguments or {})))

    def flavors(self) -> List[Dict[str, Any]]:
        """What sandboxes there are to ask for, with their limits and prices."""
        flavors: List[Dict[str, Any]] = self.transport.call("GET", "/flavors")["flavors"]
        return flavors

    def approvals(self, state: Optional[str] = None, session: Optional[str] = None) -> List[Approval]:
        """Questions that the caller may see: all that wait for a decision, or those of another `state`."""
        page = self.transport.call("GET", "/approvals", [("state", state), ("session", session)])
        return [Approval(self.transport, document) for document in page["approvals"]]

    def approval(self, approval_id: str) -> Approval:
        return Approval(self.transport, self.transport.call("GET", f"/approvals/{_quote(approval_id)}"))

    def budget(self, owner: Optional[str] = None) -> Dict[str, Any]:
        """What the caller may spend and has spent; for approvers also of another `owner`."""
        answer: Dict[str, Any] = self.transport.call("GET", "/budget", [("owner", owner)])
        return answer

    def set_budget(self, cap_usd: Optional[float], owner: Optional[str] = None) -> Dict[str, Any]:
        """Changes the owner's cap; more than before is an approver's to give."""
        answer: Dict[str, Any] = self.transport.call("PATCH", "/budget", [("owner", owner)], {"cap_usd": cap_usd})
        return answer

    # --- the daemon ---------------------------------------------------------------------------------

    def events(self, after: Optional[int] = None, follow: bool = True) -> Iterator[Event]:
        """What happens to the caller's sessions, from now on or from behind event number `after`."""
        return read_event_route(self.transport, "/events", after, follow)

    def whoami(self) -> Dict[str, Any]:
        """Who the daemon takes us for."""
        answer: Dict[str, Any] = self.transport.call("GET", "/whoami", timeout=30)
        return answer

    def capacity(self) -> Dict[str, Any]:
        answer: Dict[str, Any] = self.transport.call("GET", "/capacity", timeout=30)
        return answer


def _quote(reference: str) -> str:
    from urllib.parse import quote

    return quote(reference, safe=":")
