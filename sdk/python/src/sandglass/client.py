# Written by scripts/sdk from aio/client.py: do not edit.
# SPDX-License-Identifier: Apache-2.0
"""The way in: a daemon, and on whose behalf it is asked."""
from __future__ import annotations

import logging
import os
import secrets as random
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Union
from urllib.parse import quote

from ._wire import make_headers
from .models import Event, ToolResult, given
from ._transport import FOREVER, Transport, Options, default_url
from .approval import Approval
from .execution import Result
from .scope import Scope
from .session import Session, read_event_route

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import types

Labels = Union[Mapping[str, str], str, None]


def _label_query(label: Labels) -> "list[tuple[str, Any]]":
    if label is None:
        return []
    if isinstance(label, str):
        return [("label", label)]
    return [("label", f"{name}={value}") for name, value in label.items()]


class Client:
    """A daemon of Sandglass.

    `url` is `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`; without it `SANDGLASS_URL`, else the default socket.
    `api_key` (or `SANDGLASS_API_KEY`) proves who asks; `owner` (or `SANDGLASS_ON_BEHALF_OF`) says for whom.

    `timeout` is how long a request may wait for the daemon, in seconds; None waits for as long as it takes. Programs are not stopped by
    it: they have their own. `retries` is how often a request that can do no harm twice is repeated while the daemon is not there or not
    ready. `headers` are sent with each request, `proxy` is `http://HOST:PORT`, and `logger` gets a line for each request (debug) and
    each repetition (info).
    """

    def __init__(self, url: Optional[str] = None, api_key: Optional[str] = None, owner: Optional[str] = None, *,
                 timeout: Optional[float] = None, retries: int = 2, headers: Optional[Mapping[str, str]] = None,
                 proxy: Optional[str] = None, logger: Optional[logging.Logger] = None) -> None:
        self.url = url or default_url()
        self.owner = owner if owner is not None else os.environ.get("SANDGLASS_ON_BEHALF_OF", "")
        self._api_key = api_key if api_key is not None else os.environ.get("SANDGLASS_API_KEY", "")
        self.options = Options(timeout, retries, logger or logging.getLogger("sandglass"), proxy, dict(headers or {}))
        self.transport = Transport(self.url, make_headers(self._api_key, self.url, self.owner, self.options.headers),
                                        self.options)

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
        """The same daemon with the same key and options, for another owner."""
        options = self.options
        return Client(self.url, self._api_key, owner, timeout=options.timeout, retries=options.retries,
                           headers=options.headers, proxy=options.proxy, logger=options.logger)

    # --- sessions -----------------------------------------------------------------------------------

    def session(self, **options: "Unpack[types.CreateSession]") -> Session:
        """Opens a session. Used as a context manager it is deleted at the end, also after an exception.

            with client.session(memory_bytes="512m", labels={"run": "7"}) as session:
                print((session.run("uname -a")).stdout)

        Options are those of the API: `key`, `template`, `flavor`, `backend`, `labels`, `env`, `secrets`, `memory_bytes`, `cpus`, `pids`,
        `disk_bytes`, `network`, `lease_seconds`, `idle_timeout_seconds`, `max_lifetime_seconds`, `on_timeout`, `preload`, `auto_restart`, `auto_resume`, `keep_files`, `mounts`.
        A `key` that has a session already returns that one.
        """
        document = self.transport.call("POST", "/sessions", body=given(options), repeatable=True, timeout=FOREVER,
                                             headers={"Idempotency-Key": random.token_hex(16)})
        return Session(self, document)

    def attach(self, reference: str) -> Session:
        """A session that exists, by its id or by "key:KEY"."""
        return Session(self, self.transport.call("GET", f"/sessions/{quote(reference, safe=':')}"))

    def sessions(self, label: Labels = None, state: Optional[str] = None, owner: Optional[str] = None,
                       usage: bool = False) -> List[Session]:
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

    def delete_all(self, label: Labels = None, idle_longer_than: Optional[float] = None, dry_run: bool = False,
                         owner: Optional[str] = None) -> "types.Removal":
        """Ends all of the caller's sessions, or those with a label; all are gone when it returns. For an operator also
        those of another `owner`, or of all with "*".

        The answer has `destroyed` (ids), `failed` and `skipped`.
        """
        query = [*_label_query(label), ("idle_longer_than_seconds", idle_longer_than), ("dry_run", 1 if dry_run else None),
                 ("owner", owner)]
        answer: "types.Removal" = self.transport.call("DELETE", "/sessions", query, timeout=FOREVER)
        return answer

    def execute(self, code: str, language: str = "python", **options: "Unpack[types.ExecuteOptions]") -> Result:
        """Runs code in one call. The session is made on demand and stays: `result.session`.

            result = client.execute("print(6 * 7)", memory_bytes="512m", network="none", timeout_seconds=10)

        Options are `session_id` or `key` of a session, `timeout_seconds`, `env`, `secrets` and `cwd` of the run, `ephemeral` (the session ends
        with the run), and those of `session()` for a session that is made.
        """
        body = given(dict(code=code, language=language, **options))
        document = self.transport.call("POST", "/execute", body=body, timeout=FOREVER)
        return Result(Session(self, {"id": document["session_id"]}), document)

    def scope(self, owner: Optional[str] = None) -> Scope:
        """An owner for a while: what is made in the scope is destroyed at its end, and nothing else.

            with client.scope() as scoped:
                session = scoped.session()

        The owner is new and not guessable unless one is given. The daemon watches a lease meanwhile: should this process be killed, the
        sessions go all the same. See `Scope`.
        """
        return Scope(self, owner)

    # --- what models use, and what it costs -----------------------------------------------------------

    def tools(self) -> "List[types.Tool]":
        """The tools of a model: hand `name`, `description` and `input_schema` to it, and its calls to `call_tool`."""
        page: "types.ToolList" = self.transport.call("GET", "/tools")
        return page["tools"]

    def call_tool(self, name: str, arguments: Optional[Mapping[str, Any]] = None) -> ToolResult:
        """Calls a tool that finds its session itself (`needs_session` is false); the others are `Session.call_tool`."""
        return ToolResult(self.transport.call("POST", f"/tools/{name}", body=dict(arguments or {}), timeout=FOREVER))

    def flavors(self) -> "List[types.Flavor]":
        """The flavors of sandboxes, with their limits and prices."""
        return self.transport.entries("/flavors", "flavors")

    def approvals(self, state: Optional[str] = None, session: Optional[str] = None) -> List[Approval]:
        """Questions that the caller may see: all that wait for a decision, or those of another `state`."""
        found = self.transport.entries("/approvals", "approvals", [("state", state), ("session_id", session)])
        return [Approval(self.transport, document) for document in found]

    def approval(self, approval_id: str) -> Approval:
        """One of them, by its id."""
        return Approval(self.transport, self.transport.call("GET", f"/approvals/{quote(approval_id, safe=':')}"))

    def budget(self, owner: Optional[str] = None) -> "types.OwnerBudget":
        """The budget of the caller: cap and spent amount; for approvers also of another `owner`."""
        answer: "types.OwnerBudget" = self.transport.call("GET", "/budget", [("owner", owner)])
        return answer

    def set_budget(self, cap_usd: Optional[float], owner: Optional[str] = None) -> "types.OwnerBudget":
        """Changes the owner's cap. Only approvers can raise it."""
        answer: "types.OwnerBudget" = self.transport.call("PATCH", "/budget", [("owner", owner)], {"cap_usd": cap_usd})
        return answer

    # --- the daemon ---------------------------------------------------------------------------------

    def events(self, after: Optional[int] = None, follow: bool = True) -> Iterator[Event]:
        """Events of the caller's sessions, from now on or from behind event number `after`."""
        for event in read_event_route(self.transport, "/events", after, follow):
            yield event

    def whoami(self) -> "types.Whoami":
        """The caller, as the daemon has identified them."""
        answer: "types.Whoami" = self.transport.call("GET", "/whoami", timeout=30)
        return answer

    def capacity(self) -> "types.Capacity":
        """How many sandboxes there are and may be."""
        answer: "types.Capacity" = self.transport.call("GET", "/capacity", timeout=30)
        return answer

    def templates(self) -> "List[types.Template]":
        """The templates: root file systems of sandboxes."""
        return self.transport.entries("/templates", "templates")

    def backends(self) -> "List[types.Backend]":
        """The backends of the daemon, with their health and their features."""
        page: "types.BackendList" = self.transport.call("GET", "/backends")
        return page["backends"]

    def keys(self) -> "List[types.Key]":
        """API keys and when each was last used; for administrators."""
        return self.transport.entries("/keys", "keys")

    def nodes(self) -> "List[types.Node]":
        """The daemons of the cluster; one alone is its only node."""
        return self.transport.entries("/nodes", "nodes")

    def drain_node(self, node: str) -> "types.NodeDrain":
        """A node takes no new sessions and gives up those that can move; for administrators."""
        drained: "types.NodeDrain" = self.transport.call("POST", f"/nodes/{quote(node, safe='')}/drain")
        return drained

    def undrain_node(self, node: str) -> "types.NodeDrain":
        """A node takes new sessions again; for administrators."""
        drained: "types.NodeDrain" = self.transport.call("DELETE", f"/nodes/{quote(node, safe='')}/drain")
        return drained



