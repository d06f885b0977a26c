# Written by scripts/sdk from aio/session.py: do not edit.
# SPDX-License-Identifier: Apache-2.0
"""A session: a sandbox of one's own that is gone when its `with` is left."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Iterator, Dict, List, Mapping, Optional, Tuple, Union, cast

from .errors import Gone, NotFound
from .models import Argv, CodeResult, Event, ToolResult, execution_body, given
from ._flow import Callback
from ._transport import FOREVER, Transport
from .approval import Approval
from .context import Context
from .execution import Process, Pty, Result, Stream
from .files import Files
from .storage import Kept, Storage

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import types
    from .client import Client

SLACK_SECONDS = 60.0

Tty = Union[bool, Mapping[str, int], None]


def read_event_route(transport: Transport, path: str, after: Optional[int], follow: bool) -> Iterator[Event]:
    query = [("after", after), ("follow", 1 if follow else 0)]
    answer = transport.open("GET", path, query, headers={"Accept": "text/event-stream"}, timeout=FOREVER)
    try:
        for _, data, _ in answer.events():
            document = json.loads(data)
            if "sequence" in document:  # "shutdown" has none: the stream breaks next, and goes on with the next daemon
                yield Event(document)
    finally:
        answer.close()


class Session:
    """A session of the daemon. Made by `Client.session()`; deleted at the end of its `with`, also after an exception.

    `raw` is the daemon's document as it was last seen; `refresh()` asks again.
    """

    def __init__(self, client: "Client", document: Mapping[str, Any]) -> None:
        self.client = client
        self.transport: Transport = client.transport
        self.raw = cast("types.Session", dict(document))
        self.id = str(document["id"])
        self.path: str = f"/sessions/{self.id}"
        self.files = Files(self)
        self.storage = Storage(self)
        self.kept = Kept(self)
        self._contexts: Dict[str, Context] = {}

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        # Also when we are being cancelled: the session goes before we do.
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.raw.get('state')}>"

    @property
    def state(self) -> str:
        """"open", "paused", "ending" or "ended", as it was last seen."""
        return str(self.raw.get("state") or "")

    @property
    def expires_at(self) -> Optional[str]:
        """When its lease ends, as it was last seen."""
        return self.raw.get("expires_at")

    @property
    def end_reason(self) -> Optional[str]:
        """Why it ended: "idle", "lease", "deleted", "crashed: oom", …; None while it lives."""
        return self.raw.get("end_reason")

    # --- running programs ---------------------------------------------------------------------------

    def run(self, program: Argv, *, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
                  user: Optional[str] = None, timeout: Optional[float] = None, stdin: Optional[str] = None,
                  key: Optional[str] = None, generation: Optional[int] = None, check: bool = False,
                  secrets: Optional[Mapping[str, str]] = None, on_stdout: Optional[Callback] = None,
                  on_stderr: Optional[Callback] = None) -> Result:
        """Runs a program to its end: a list is its argv, a text is a line for the shell.

        `secrets` are variables as in `env` whose values are shown to no reader. `timeout` in seconds kills the program with everything
        that it started: the state is "timeout" then. `stdin` is all of its input. `key` is the caller's own id: a repeated one returns
        the same execution. `on_stdout` and `on_stderr` are called with text while it runs. `check=True` raises `ExecutionFailed` unless
        it ends with exit code 0. If we are interrupted or cancelled meanwhile, the program is cancelled.
        """
        options = dict(env=env, cwd=cwd, user=user, timeout_seconds=timeout, stdin=stdin, key=key, secrets=secrets,
                       generation=generation, cancel_on_disconnect=True)
        if on_stdout or on_stderr:
            with self._stream(program, options) as output:
                result = output.tell(on_stdout, on_stderr)
        else:
            document = self.transport.call("POST", self.path + "/executions", body=execution_body(program, options),
                                                 timeout=FOREVER if timeout is None else timeout + SLACK_SECONDS,
                                                 repeatable=key is not None)
            result = Result(self, document)
        return result.check() if check else result

    def execute(self, code: str, language: str = "python", *, env: Optional[Mapping[str, str]] = None,
                      cwd: Optional[str] = None, timeout: Optional[float] = None, check: bool = False,
                      secrets: Optional[Mapping[str, str]] = None) -> Result:
        """Runs code in a new process, 60 seconds at most unless `timeout` says otherwise. The result has `output_files`, the names of
        files in the workspace that are new or changed, and `session_files`, all of them with size and time."""
        body = given(dict(code=code, language=language, session_id=self.id, env=env, secrets=secrets, cwd=cwd,
                          timeout_seconds=timeout))
        result = Result(self, self.transport.call("POST", "/execute", body=body, timeout=FOREVER))
        return result.check() if check else result

    def stream(self, program: Argv, *, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
                     user: Optional[str] = None, timeout: Optional[float] = None, stdin: Union[str, bool, None] = None,
                     tty: Tty = None, secrets: Optional[Mapping[str, str]] = None) -> Stream:
        """Runs a program and iterates over its output, exact bytes, as it comes.

            with session.stream(["make"]) as output:
                for chunk in output:
                    log.write(chunk.data)
                result = output.wait()
        """
        return self._stream(program, dict(env=env, cwd=cwd, user=user, timeout_seconds=timeout, stdin=stdin, tty=tty,
                                                secrets=secrets, cancel_on_disconnect=True))

    def _stream(self, program: Argv, options: Mapping[str, Any]) -> Stream:
        answer = self.transport.open("POST", self.path + "/executions", (),
                                           json.dumps(execution_body(program, options)).encode(),
                                           {"Content-Type": "application/json", "Accept": "text/event-stream"},
                                           timeout=FOREVER)
        return Stream(self, answer, Process(self, {"id": answer.headers["x-sandglass-execution-id"]}))

    def pty(self, program: Argv = ("/bin/bash",), *, columns: int = 80, rows: int = 24,
                  env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, user: Optional[str] = None,
                  timeout: Optional[float] = None) -> Pty:
        """Starts a program with a terminal: iterate over what it prints, `write()` what is typed, `resize()`, `kill()`."""
        options = dict(env=env, cwd=cwd, user=user, timeout_seconds=timeout, stdin=True, tty={"cols": columns, "rows": rows},
                       cancel_on_disconnect=True)
        stream = self._stream(program, options)
        return Pty(self, stream._answer, stream.process)

    def start(self, program: Argv, *, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
                    user: Optional[str] = None, timeout: Optional[float] = None, stdin: Union[str, bool, None] = None,
                    tty: Tty = None, key: Optional[str] = None,
                    secrets: Optional[Mapping[str, str]] = None) -> Process:
        """Starts a program and returns at once. With `stdin=True` its input is `process.stdin`."""
        body = execution_body(program, dict(env=env, cwd=cwd, user=user, timeout_seconds=timeout, stdin=stdin, tty=tty, key=key,
                                            secrets=secrets, background=True))
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

    # --- code that keeps its state --------------------------------------------------------------------

    def context(self, language: str = "python", *, cwd: Optional[str] = None,
                      env: Optional[Mapping[str, str]] = None) -> Context:
        """Starts an interpreter that keeps its variables."""
        body = given({"language": language, "cwd": cwd, "env": env})
        return Context(self, self.transport.call("POST", self.path + "/contexts", body=body))

    def contexts(self) -> List[Context]:
        """The interpreters of the session."""
        found = self.transport.entries(self.path + "/contexts", "contexts")
        return [Context(self, document) for document in found]

    def run_code(self, code: str, language: str = "python", *, timeout: Optional[float] = None,
                       on_stdout: Optional[Callback] = None, on_stderr: Optional[Callback] = None,
                       on_result: Optional[Callback] = None, on_error: Optional[Callback] = None,
                       check: bool = False) -> CodeResult:
        """Runs code as a cell of a notebook: variables stay for the next one. See `Context.run`.

            session.run_code("x = 6")
            print((session.run_code("x * 7")).text)
        """
        if language not in self._contexts:
            self._contexts[language] = self.context(language)
        return self._contexts[language].run(code, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr,
                                                  on_result=on_result, on_error=on_error, check=check)

    def call_tool(self, name: str, arguments: Optional[Mapping[str, Any]] = None,
                        client: Optional[str] = None) -> ToolResult:
        """Calls a tool of a model, as `Client.tools()` lists them. That it failed is a result with `is_error`; a call that is
        wrong raises `Invalid`. Each `client` has its own shell and interpreter."""
        return ToolResult(self.transport.call("POST", f"{self.path}/tools/{name}", [("client", client)],
                                                    dict(arguments or {}), timeout=FOREVER))

    # --- ports ----------------------------------------------------------------------------------------

    def ports(self) -> "List[types.Port]":
        """TCP ports that programs in the sandbox listen on."""
        return self.transport.entries(self.path + "/ports", "ports")

    def port_url(self, port: int, expires: Optional[float] = None) -> "types.PortUrl":
        """A signed URL with which a port can be used without credentials, for `expires` seconds."""
        made: "types.PortUrl" = self.transport.call("POST", f"{self.path}/ports/{port}/url",
                                                          body=given({"valid_seconds": expires}))
        return made

    def request_port(self, port: int, path: str = "/", method: str = "GET", body: Optional[bytes] = None,
                           headers: Optional[Mapping[str, str]] = None) -> "Tuple[int, Dict[str, str], bytes]":
        """An HTTP request to a server in the sandbox: status, headers and body of its answer. Statuses of 400 and more raise."""
        answer = self.transport.open(method, f"{self.path}/ports/{port}/{path.lstrip('/')}", (), body, headers)
        return answer.status, answer.headers, answer.read()

    # --- its sandbox, and what it costs ---------------------------------------------------------------

    def sandbox(self, flavor: Optional[str] = None, *, memory: Union[int, str, None] = None,
                      cpus: Optional[float] = None, disk: Union[int, str, None] = None,
                      pids: Optional[int] = None) -> Optional[Approval]:
        """Makes the sandbox, or asks for one of another flavor or with other limits.

        None when it is there or being made; the approval when a person has to decide first, and nothing has changed.
        """
        body = given({"flavor": flavor, "memory_bytes": memory, "cpus": cpus, "disk_bytes": disk, "pids": pids})
        document = self.transport.call("POST", self.path + "/sandbox", body=body)
        if document.get("kind") == "approval":
            return Approval(self.transport, document)
        self.raw = document
        return None

    def budget(self) -> "types.Budget":
        """The budget of the session, and that of its owner."""
        answer: "types.Budget" = self.transport.call("GET", self.path + "/budget")
        return answer

    def set_budget(self, cap_usd: Optional[float] = None, auto_approve: Optional[bool] = None) -> "types.Budget":
        """Changes its cap, and whether what fits under it is approved automatically. Only approvers can raise a cap."""
        answer: "types.Budget" = self.transport.call(
            "PATCH", self.path + "/budget", body=given({"cap_usd": cap_usd, "auto_approve": auto_approve}))
        return answer

    def usage(self) -> "Optional[types.Usage]":
        """The usage of its sandbox now: processor time, memory, disk, processes. None without a sandbox."""
        self.raw = self.transport.call("GET", self.path, [("usage", 1)])
        return self.raw.get("usage")

    def usage_history(self, since: Optional[str] = None) -> "types.UsageHistory":
        """The usage of its sandbox over time: `samples`, only those after the time `since`."""
        history: "types.UsageHistory" = self.transport.call("GET", self.path + "/usage", [("since", since)])
        return history

    # --- its life -----------------------------------------------------------------------------------

    def refresh(self) -> "types.Session":
        """The session as it is now, with its sandbox and clocks. Looking is not use: no clock is moved."""
        self.raw = self.transport.call("GET", self.path)
        return self.raw

    def keepalive(self, timeout: Optional[float] = None, exact: bool = False) -> "types.Session":
        """Its lease ends `timeout` seconds from now; never earlier than before unless `exact`."""
        self.raw = self.transport.call("POST", self.path + "/keepalive", body=given({"exact": exact, "lease_seconds": timeout}))
        return self.raw

    def update(self, **fields: "Unpack[types.UpdateSession]") -> "types.Session":
        """Changes `labels`, `secrets`, `lease_seconds`, `idle_timeout_seconds`, `max_lifetime_seconds`, `on_timeout`, `auto_restart`, `auto_resume`,
        `keep_files`."""
        self.raw = self.transport.call("PATCH", self.path, body=given(fields))
        return self.raw

    def pause(self) -> "types.Session":
        """Freezes everything in it."""
        self.raw = self.transport.call("POST", self.path + "/pause")
        return self.raw

    def resume(self) -> "types.Session":
        """Lets it go on."""
        self.raw = self.transport.call("POST", self.path + "/resume")
        return self.raw

    def teardown(self) -> "types.Session":
        """Takes its sandbox away; the session stays and the next use makes a new one."""
        self.raw = self.transport.call("POST", self.path + "/sandbox/teardown")
        return self.raw

    def teardown_url(self, valid_for: Optional[float] = None, grace: Optional[float] = None) -> "types.TeardownToken":
        """A URL with which a closing web page takes the sandbox away: no credentials are needed."""
        made: "types.TeardownToken" = self.transport.call("POST", self.path + "/teardown-token",
                                                                body=given({"valid_seconds": valid_for, "grace_seconds": grace}))
        return made

    def events(self, after: Optional[int] = None, follow: bool = False) -> Iterator[Event]:
        """The events of the session, from the first or from behind number `after`; with `follow` also later ones, until
        it has ended."""
        for event in read_event_route(self.transport, self.path + "/events", after, follow):
            yield event
            if event.type == "session.ended":
                return

    def history(self, output: bool = True) -> "Iterator[types.HistoryEntry]":
        """All that is kept of it, in order: events, those of type "execution.ended" with the `execution`. It can be read
        until its retention is over, also when it has ended."""
        cursor: Optional[str] = None
        while True:
            page: "types.History" = self.transport.call("GET", self.path + "/history",
                                                              [("output", int(output)), ("cursor", cursor)])
            for entry in page["entries"]:
                yield entry
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def delete(self) -> "types.Session":
        """Ends it; returns its final record when its sandbox is gone."""
        self.raw = self.transport.call("DELETE", self.path, timeout=FOREVER)
        return self.raw

    def close(self) -> None:
        """As `delete()`, and fine if it has ended already."""
        try:
            self.delete()
        except (NotFound, Gone):
            pass




