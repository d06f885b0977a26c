"""A session: a sandbox of one's own that is gone when its `with` is left."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Union

from ._sse import read_numbered_events
from ._transport import Transport
from .approval import Approval
from .errors import Gone, NotFound
from .execution import Argv, Process, Result, Stream, request_body
from .files import Files
from .storage import Kept, Storage

if TYPE_CHECKING:
    from .client import Client

SLACK_SECONDS = 60.0


class Event:
    """Something that happened: `type` ("session.created"), `sequence` (its number), `time`, `session_id`, `data`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.type = str(document["type"])
        self.sequence = int(document["sequence"])
        self.session_id = str(document.get("session_id") or "")
        self.time = str(document.get("time") or "")
        self.data: Dict[str, Any] = dict(document.get("data") or {})

    def __repr__(self) -> str:
        return f"<Event {self.sequence} {self.type} {self.session_id}>"


def read_event_route(transport: Transport, path: str, after: Optional[int], follow: bool) -> Iterator[Event]:
    query = [("after", after), ("follow", 1 if follow else 0)]
    answer = transport.open("GET", path, query, headers={"Accept": "text/event-stream"})
    try:
        for _, data, _ in read_numbered_events(answer):
            document = json.loads(data)
            if "sequence" in document:  # "shutdown" has none: the stream breaks next, and goes on with the next daemon
                yield Event(document)
    finally:
        answer.close()


class ToolResult:
    """What a tool answered: `text` for the model, `is_error`, `structured` for programs, and all of its `content`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.content: List[Dict[str, Any]] = list(document.get("content") or [])
        self.is_error = bool(document.get("is_error"))
        self.structured: Dict[str, Any] = dict(document.get("structured") or {})

    @property
    def text(self) -> str:
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")

    def __repr__(self) -> str:
        return f"<ToolResult {'error' if self.is_error else 'ok'} {self.text[:40]!r}>"


class Session:
    """A session of the daemon. Made by `Client.session()`; deleted at the end of its `with`, whatever happens in it.

    `raw` is the daemon's document as it was last seen; `refresh()` asks again.
    """

    def __init__(self, client: "Client", document: Mapping[str, Any]) -> None:
        self.client = client
        self.transport: Transport = client.transport
        self.raw: Dict[str, Any] = dict(document)
        self.id = str(document["id"])
        self.path: str = f"/sessions/{self.id}"
        self.files = Files(self)
        self.storage = Storage(self)
        self.kept = Kept(self)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.raw.get('state')}>"

    # --- running programs ---------------------------------------------------------------------------

    def run(self, program: Argv, *, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
            user: Optional[str] = None, timeout: Optional[float] = None, stdin: Union[str, None] = None,
            key: Optional[str] = None, generation: Optional[int] = None, check: bool = False,
            secrets: Optional[Mapping[str, str]] = None) -> Result:
        """Runs a program to its end: a list is its argv, a text is a line for the shell.

        `secrets` are variables as in `env` whose values nobody is shown. `timeout` in seconds kills it with everything it started: the state is "timeout" then. `stdin` is all of its
        input. `key` is the caller's own id: a repeated one returns the same execution. `check=True` raises
        `ExecutionFailed` unless it ends with exit code 0. If we are interrupted meanwhile, the program is cancelled.
        """
        body = request_body(program, dict(env=env, cwd=cwd, user=user, timeout=timeout, stdin=stdin, key=key,
                                          secrets=secrets, generation=generation, cancel_on_disconnect=True))
        document = self.transport.call("POST", self.path + "/executions", body=body,
                                       timeout=None if timeout is None else timeout + SLACK_SECONDS,
                                       repeatable=key is not None)
        result = Result(self, document)
        return result.check() if check else result

    def execute(self, code: str, language: str = "python", *, env: Optional[Mapping[str, str]] = None,
                cwd: Optional[str] = None, timeout: Optional[float] = None, check: bool = False,
                secrets: Optional[Mapping[str, str]] = None) -> Result:
        """Runs code, 60 seconds at most unless `timeout` says otherwise. The result has `output_files`, the names of
        files in the workspace that are new or changed, and `session_files`, all of them with size and time."""
        given = dict(code=code, language=language, session_id=self.id, env=env, secrets=secrets, cwd=cwd,
                     timeout=timeout)
        document = self.transport.call("POST", "/execute",
                                       body={name: value for name, value in given.items() if value is not None})
        result = Result(self, document)
        return result.check() if check else result

    def stream(self, program: Argv, *, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
               user: Optional[str] = None, timeout: Optional[float] = None, stdin: Optional[str] = None,
               tty: Union[bool, Mapping[str, int], None] = None) -> Stream:
        """Runs a program and iterates over its output, exact bytes, as it comes.

            with session.stream(["make"]) as output:
                for chunk in output:
                    log.write(chunk.data)
                result = output.wait()
        """
        body = request_body(program, dict(env=env, cwd=cwd, user=user, timeout=timeout, stdin=stdin, tty=tty,
                                          cancel_on_disconnect=True))
        answer = self.transport.open("POST", self.path + "/executions", (), json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Accept": "text/event-stream"})
        return Stream(self, answer)

    def start(self, program: Argv, *, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
              user: Optional[str] = None, timeout: Optional[float] = None, stdin: Union[str, bool, None] = None,
              tty: Union[bool, Mapping[str, int], None] = None, key: Optional[str] = None) -> Process:
        """Starts a program and returns at once. With `stdin=True` its input is `process.stdin`."""
        body = request_body(program, dict(env=env, cwd=cwd, user=user, timeout=timeout, stdin=stdin, tty=tty, key=key,
                                          background=True))
        document = self.transport.call("POST", self.path + "/executions", body=body, repeatable=key is not None)
        return Process(self, document)

    def execution(self, execution_id: str) -> Process:
        """A handle of an execution by its id; nothing is asked yet."""
        return Process(self, {"id": execution_id})

    def executions(self, state: Optional[str] = None) -> List[Process]:
        """All executions of the session, the newest first."""
        found: List[Process] = []
        cursor: Optional[str] = None
        while True:
            page = self.transport.call("GET", self.path + "/executions", [("state", state), ("cursor", cursor)])
            found += [Process(self, document) for document in page["executions"]]
            cursor = page.get("next_cursor")
            if not cursor:
                return found

    def call_tool(self, name: str, arguments: Optional[Mapping[str, Any]] = None,
                  client: Optional[str] = None) -> ToolResult:
        """Calls a tool of a model, as `Client.tools()` lists them. That it failed is a result with `is_error`; a call that is
        wrong raises `Invalid`. Each `client` has its own shell and interpreter."""
        return ToolResult(self.transport.call("POST", f"{self.path}/tools/{name}", [("client", client)],
                                              dict(arguments or {})))

    # --- its sandbox, and what it costs ---------------------------------------------------------------

    def sandbox(self, flavor: Optional[str] = None, **limits: Any) -> Optional[Approval]:
        """Makes the sandbox, or asks for one of another flavor or with other `memory`, `cpus`, `disk`, `pids`.

        None when it is there or being made; the approval when a person has to decide first, and nothing has changed.
        """
        body = {name: value for name, value in {"flavor": flavor, **limits}.items() if value is not None}
        document = self.transport.call("POST", self.path + "/sandbox", body=body)
        if document.get("kind") == "approval":
            return Approval(self.transport, document)
        self.raw = document
        return None

    def budget(self) -> Dict[str, Any]:
        """What it may spend and has spent, and the same of its owner."""
        answer: Dict[str, Any] = self.transport.call("GET", self.path + "/budget")
        return answer

    def set_budget(self, cap_usd: Optional[float] = None, auto_approve: Optional[bool] = None) -> Dict[str, Any]:
        """Changes its cap, and whether what fits under it is approved automatically. More is an approver's to give."""
        given = {"cap_usd": cap_usd, "auto_approve": auto_approve}
        answer: Dict[str, Any] = self.transport.call(
            "PATCH", self.path + "/budget", body={name: value for name, value in given.items() if value is not None})
        return answer

    def usage(self) -> Optional[Dict[str, Any]]:
        """What its sandbox uses now: processor time, memory, disk, processes. None without a sandbox."""
        self.raw = self.transport.call("GET", self.path, [("usage", 1)])
        return self.raw.get("usage")

    # --- its life -----------------------------------------------------------------------------------

    def refresh(self) -> Dict[str, Any]:
        """The session as it is now, with its sandbox and clocks. Looking is not use: no clock is moved."""
        self.raw = self.transport.call("GET", self.path)
        return self.raw

    def keepalive(self, timeout: Optional[float] = None, exact: bool = False) -> Dict[str, Any]:
        """Its lease ends `timeout` seconds from now; never earlier than before unless `exact`."""
        body: Dict[str, Any] = {"exact": exact}
        if timeout is not None:
            body["timeout"] = timeout
        self.raw = self.transport.call("POST", self.path + "/keepalive", body=body)
        return self.raw

    def update(self, **fields: Any) -> Dict[str, Any]:
        """Changes `labels`, `timeout`, `idle_timeout`, `max_lifetime`, `on_timeout`, `auto_restart`, `auto_resume`."""
        self.raw = self.transport.call("PATCH", self.path, body=fields)
        return self.raw

    def pause(self) -> Dict[str, Any]:
        """Freezes everything in it."""
        self.raw = self.transport.call("POST", self.path + "/pause")
        return self.raw

    def resume(self) -> Dict[str, Any]:
        self.raw = self.transport.call("POST", self.path + "/resume")
        return self.raw

    def teardown(self) -> Dict[str, Any]:
        """Takes its sandbox away; the session stays and the next use makes a new one."""
        self.raw = self.transport.call("POST", self.path + "/sandbox/teardown")
        return self.raw

    def events(self, after: Optional[int] = None, follow: bool = False) -> Iterator[Event]:
        """What happened to it, from its beginning or behind event number `after`; with `follow` also what will, until
        it has ended."""
        for event in read_event_route(self.transport, self.path + "/events", after, follow):
            yield event
            if event.type == "session.ended":
                return

    def history(self, output: bool = True) -> Iterator[Dict[str, Any]]:
        """All that is kept of it, in order: events, those of type "execution.ended" with the `execution`. It can be read
        until its retention is over, also when it has ended."""
        cursor: Optional[str] = None
        while True:
            page = self.transport.call("GET", self.path + "/history", [("output", int(output)), ("cursor", cursor)])
            yield from page["entries"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def delete(self) -> Dict[str, Any]:
        """Ends it; returns its final record when its sandbox is gone."""
        self.raw = self.transport.call("DELETE", self.path)
        return self.raw

    def close(self) -> None:
        """As `delete()`, and fine if it has ended already."""
        try:
            self.delete()
        except (NotFound, Gone):
            pass
