"""Documents of the API as types. Written by scripts/sdk from the OpenAPI document: do not edit.

An answer is a dictionary with these keys; `CreateSession` and the like are the bodies of requests.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired



class Activity(TypedDict):
    """An execution or process that keeps a session alive."""

    kind: Literal['execution', 'background']
    execution_id: NotRequired[str]
    process: NotRequired[Optional[str]]
    cpu_seconds: NotRequired[Optional[float]]
    since: Optional[str]
    until: NotRequired[Optional[str]]


class Approval(TypedDict):
    """A question to the person who pays."""

    id: str
    """apr_…"""
    kind: Literal['approval']
    state: Literal['pending', 'approved', 'denied', 'expired', 'cancelled']
    session_id: str
    session: str
    """the old name of session_id"""
    owner: str
    requested_by: Optional[str]
    on_behalf_of: Optional[str]
    flavor: str
    price_per_hour: Optional[float]
    estimated_usd: Optional[float]
    question: Optional[str]
    created_at: str
    expires_at: Optional[str]
    scope: Optional[Literal['once', 'session']]
    decided_by: Optional[str]
    decided_at: Optional[str]
    decision_reason: Optional[str]
    result: Optional[str]


class ApprovalList(TypedDict):
    """Approvals."""

    approvals: List[Approval]
    next_cursor: Optional[str]
    """null: the last page"""


class ApprovalRequest(TypedDict):
    """An approval, and what happens next."""

    id: str
    """apr_…"""
    kind: Literal['approval']
    state: Literal['pending', 'approved', 'denied', 'expired', 'cancelled']
    session_id: str
    session: str
    """the old name of session_id"""
    owner: str
    requested_by: Optional[str]
    on_behalf_of: Optional[str]
    flavor: str
    price_per_hour: Optional[float]
    estimated_usd: Optional[float]
    question: Optional[str]
    created_at: str
    expires_at: Optional[str]
    scope: Optional[Literal['once', 'session']]
    decided_by: Optional[str]
    decided_at: Optional[str]
    decision_reason: Optional[str]
    result: Optional[str]
    message: str


class AuditEntries(TypedDict):
    """Lines of the audit log, the oldest first."""

    entries: List[Dict[str, Any]]


class Backend(TypedDict):
    """A backend, which makes sandboxes, and its features."""

    name: str
    summary: str
    default: bool
    selectable: bool
    """a session may name it"""
    active: bool
    healthy: bool
    reason: Optional[str]
    """why it is not active or not healthy"""
    freeze: NotRequired[bool]
    usage: NotRequired[bool]
    limits: NotRequired[bool]
    outlives_daemon: NotRequired[bool]
    gpus: NotRequired[bool]
    network: NotRequired[bool]
    disk: NotRequired[bool]
    templates: NotRequired[bool]
    mounts: NotRequired[bool]
    """sessions may mount directories of the host"""


class BackendList(TypedDict):
    """Backends."""

    backends: List[Backend]
    next_cursor: Optional[str]
    """null: the last page"""


class Budget(TypedDict):
    """The budget of a session."""

    session_id: str
    session: str
    """the old name of session_id"""
    auto_approve: bool
    cap_usd: float
    spent_usd: float
    reserved_usd: float
    remaining_usd: float
    next_threshold_usd: float
    approved_flavors: Any
    meter: Optional[Meter]
    """the metered sandbox"""
    owner: OwnerBudget


class Capacity(TypedDict):
    """Slots for sandboxes."""

    max_sandboxes: int
    max_per_owner: int
    overflow: str
    """evict, wait or reject"""
    burst: int
    sandboxes: int
    waiting: int
    idle: int
    """could be evicted"""
    pool: int
    """ready for the next session"""
    own: int
    """of the caller's owner"""
    host: NotRequired[HostLoad]
    nodes: NotRequired[List[NodeCapacity]]
    """in a cluster: the same of each node"""


class Confinement(TypedDict):
    """The daemon's own walls."""

    mode: Optional[str]
    seccomp: bool
    landlock: int
    missing: Optional[str]


class Context(TypedDict):
    """An interpreter that keeps its state."""

    id: str
    """ctx_…"""
    session_id: str
    language: str
    state: Literal['starting', 'idle', 'busy', 'stopped']
    cwd: Optional[str]
    execution_id: Optional[str]
    """the interpreter"""
    replacements: int
    """how often the interpreter was replaced"""
    cause: Optional[str]
    """why it was replaced last"""
    created_at: str


class ContextList(TypedDict):
    """Contexts of a session."""

    contexts: List[Context]
    next_cursor: Optional[str]
    """null: the last page"""


class Edited(TypedDict):
    """A file after an edit."""

    path: str
    type: str
    """file, directory, link, …"""
    size_bytes: int
    size: int
    """the old name of size_bytes"""
    mode: str
    """octal"""
    uid: int
    gid: int
    modified: Optional[str]
    etag: str
    target: NotRequired[str]
    """of a symbolic link"""
    error: NotRequired[ErrorDetail]
    """why it could not be read"""
    replacements: int


class Empty(TypedDict):
    """An empty object: the request was done."""


class Error(TypedDict):
    """A failed request."""

    error: ErrorDetail
    session: NotRequired[Session]
    """of 410: the final record"""


class ErrorDetail(TypedDict):
    """An error: stable code, sentences for people."""

    code: str
    """stable name of the error; more may be added"""
    message: str
    """the error, for people"""
    hint: str
    """the remedy"""
    retryable: bool
    """the same request may succeed later"""
    reason: NotRequired[str]
    """of 410: why the session ended"""
    count: NotRequired[int]
    """of match_count: how often the text occurs"""
    rule: NotRequired[str]
    """of command_blocked: the name of the rule"""


class Event(TypedDict):
    """Something that happened."""

    sequence: int
    """its number; also the id of the Server-Sent Event"""
    type: str
    """session.created, sandbox.ready, execution.ended, …"""
    session_id: Optional[str]
    session_sequence: int
    """its number in the session"""
    time: str
    data: Dict[str, Any]


class ExecuteResult(TypedDict):
    """Code that has run, and its session."""

    stdout: str
    stderr: str
    truncated: bool
    state: Literal['queued', 'running', 'exited', 'timeout', 'output_limit', 'cancelled', 'crashed']
    exit_code: Optional[int]
    signal: Optional[int]
    reason: Optional[str]
    error: Optional[ErrorDetail]
    """why it was not started, or why its output is not complete"""
    execution_id: str
    duration_seconds: float
    files_were_reset: bool
    warning: Optional[str]
    reset_reason: Optional[str]
    session_id: str
    session_ended: bool
    session_time_remaining_seconds: Optional[float]
    """until the next clock ends the session"""
    session_ttl_remaining: Optional[float]
    """the old name of session_time_remaining_seconds"""
    session_files: List[StoredFile]
    """files of the workspace"""
    output_files: List[str]
    """those that are new or changed"""


class Execution(TypedDict):
    """A program that runs or has run."""

    id: str
    """exe_…"""
    session_id: str
    sandbox_id: Optional[str]
    key: Optional[str]
    """the caller's own id"""
    state: Literal['queued', 'running', 'exited', 'timeout', 'output_limit', 'cancelled', 'crashed']
    exit_code: Optional[int]
    signal: Optional[int]
    """number of the signal that ended it"""
    reason: Optional[str]
    error: Optional[ErrorDetail]
    """why it was not started, or why its output is not complete"""
    warning: Optional[str]
    """of a rule for commands, or that the sandbox has no network"""
    background: bool
    generation: int
    files_were_reset: bool
    """it ran in a new sandbox, without the files of the one before"""
    reset_reason: Optional[str]
    timeout_seconds: Optional[float]
    """null: none"""
    timeout: Optional[float]
    """the old name of timeout_seconds"""
    created_at: str
    started_at: Optional[str]
    ended_at: Optional[str]
    duration_seconds: Optional[float]
    cpu_seconds: float
    max_memory_bytes: int
    stdout_bytes: int
    """all that it wrote, kept or not"""
    stderr_bytes: int
    stdin_bytes: NotRequired[int]
    stdin_pending: NotRequired[int]
    request: Dict[str, Any]
    """the request that started the execution"""
    stdout: NotRequired[str]
    """head and tail"""
    stderr: NotRequired[str]
    truncated: NotRequired[bool]
    output_error: NotRequired[str]


class ExecutionCount(TypedDict):
    """Executions of a session."""

    running: int
    total: int


class ExecutionList(TypedDict):
    """A page of executions, the newest first."""

    executions: List[Execution]
    next_cursor: Optional[str]


class File(TypedDict):
    """A file, directory or link."""

    path: str
    type: str
    """file, directory, link, …"""
    size_bytes: int
    size: int
    """the old name of size_bytes"""
    mode: str
    """octal"""
    uid: int
    gid: int
    modified: Optional[str]
    etag: str
    target: NotRequired[str]
    """of a symbolic link"""
    error: NotRequired[ErrorDetail]
    """why it could not be read"""


class FileChange(TypedDict):
    """Of the events created, modified, written, deleted, … of a watch."""

    path: NotRequired[str]
    is_directory: NotRequired[bool]
    directories: NotRequired[int]
    """of watching"""
    truncated: NotRequired[bool]
    """of watching"""
    reason: NotRequired[Optional[str]]
    """of end"""


class FileList(TypedDict):
    """A page of a directory."""

    entries: List[File]
    total: int
    next_cursor: Optional[str]
    truncated: bool


class Flavor(TypedDict):
    """A size of sandboxes, and its price."""

    memory_bytes: Optional[int]
    """null: not limited"""
    cpus: Optional[float]
    pids: Optional[int]
    disk_bytes: Optional[int]
    name: str
    backend: str
    gpus: int
    price_per_hour: Optional[float]
    needs_approval: bool
    default: bool
    available: bool
    reason: Optional[str]
    """why it is not available"""


class FlavorList(TypedDict):
    """Flavors."""

    flavors: List[Flavor]
    next_cursor: Optional[str]
    """null: the last page"""


class GrepLine(TypedDict):
    """A line of a file."""

    path: str
    line: int
    text: str
    match: bool
    """false: a line of the context"""
    cut: NotRequired[bool]
    """the line is longer"""


class GrepResult(TypedDict):
    """Lines that match."""

    lines: List[GrepLine]
    matches: int
    files_skipped: int
    truncated: bool


class Health(TypedDict):
    """The daemon lives."""

    status: str
    version: str
    instance: str
    uptime_seconds: float
    confinement: NotRequired[Confinement]


class History(TypedDict):
    """A page of a session's history."""

    session: Session
    entries: List[HistoryEntry]
    next_cursor: Optional[str]


class HistoryEntry(TypedDict):
    """An event, with the execution if one has ended."""

    sequence: int
    """its number; also the id of the Server-Sent Event"""
    type: str
    """session.created, sandbox.ready, execution.ended, …"""
    session_id: Optional[str]
    session_sequence: int
    """its number in the session"""
    time: str
    data: Dict[str, Any]
    execution: NotRequired[Execution]


class HostLoad(TypedDict):
    """The resources of the host, and its load."""

    cpus: int
    load: float
    """of the last minute"""
    memory_bytes: int
    memory_available_bytes: NotRequired[int]


class Interrupted(TypedDict):
    """Interrupted calls."""

    interrupted: int


class KeptFile(TypedDict):
    """A file of a saved workspace."""

    path: str
    type: str
    size_bytes: int
    size: int
    """the old name of size_bytes"""
    modified: Optional[str]


class KeptList(TypedDict):
    """A saved workspace."""

    files: List[KeptFile]
    size_bytes: int
    """of the archive"""
    bytes: int
    """the old name of size_bytes"""
    kept_at: Optional[str]


class KeptWorkspace(TypedDict):
    """A saved workspace."""

    size_bytes: int
    bytes: int
    """the old name of size_bytes"""
    kept_at: str
    generation: int


class Key(TypedDict):
    """An API key, without its secret."""

    id: str
    principal: str
    roles: List[str]
    created_at: Optional[str]
    expires_at: Optional[str]
    revoked_at: Optional[str]
    last_used_at: Optional[str]


class KeyList(TypedDict):
    """API keys."""

    keys: List[Key]
    next_cursor: Optional[str]
    """null: the last page"""


class Limits(TypedDict):
    """Limits of a sandbox."""

    memory_bytes: Optional[int]
    """null: not limited"""
    cpus: Optional[float]
    pids: Optional[int]
    disk_bytes: Optional[int]


class Login(TypedDict):
    """A login of the dashboard."""

    expires_at: str


class LoginToken(TypedDict):
    """A one-time token for the dashboard."""

    token: str
    url: str
    expires_at: str


class Matches(TypedDict):
    """Files that match a pattern."""

    entries: List[File]
    truncated: bool


class Meter(TypedDict):
    """The meter of a sandbox with a price."""

    flavor: str
    sandbox_id: Optional[str]
    sandbox: Optional[str]
    """the old name of sandbox_id"""
    price_per_hour: float
    started_at: Optional[str]
    reserved_until: Optional[str]


class Mount(TypedDict):
    """A directory of the host in a sandbox."""

    host_path: str
    """directory of the daemon's host"""
    path: str
    """where it is inside"""
    read_only: bool


class NextEnd(TypedDict):
    """The clock that ends the session next, if it is not used."""

    reason: str
    in_seconds: Optional[float]


class Node(TypedDict):
    """A daemon of the cluster."""

    id: str
    address: Optional[str]
    state: str
    """up, draining, …"""
    self: bool
    epoch: NotRequired[int]
    lease_remaining_seconds: NotRequired[float]
    lease_remaining: NotRequired[float]
    """the old name of lease_remaining_seconds"""
    sessions: int
    sandboxes: int
    max_sandboxes: int
    load: NotRequired[float]
    backends: NotRequired[List[str]]
    labels: NotRequired[Dict[str, str]]
    version: Optional[str]


class NodeCapacity(TypedDict):
    """Slots for sandboxes of a node."""

    node: str
    capacity: Optional[Capacity]
    """null: it did not answer"""


class NodeDrain(TypedDict):
    """A node that takes sessions, or does not."""

    id: str
    state: str
    sessions: int


class NodeList(TypedDict):
    """Daemons of the cluster."""

    nodes: List[Node]
    next_cursor: Optional[str]
    """null: the last page"""
    clustered: bool


class OutputEvent(TypedDict):
    """Of the events stdout, stderr and exit of a stream."""

    offset: NotRequired[int]
    """of its first byte"""
    text: NotRequired[str]
    base64: NotRequired[str]
    """bytes that are not UTF-8"""
    state: NotRequired[str]
    """of exit, with the other fields of the execution"""


class OwnerBudget(TypedDict):
    """The budget of an owner."""

    owner: str
    cap_usd: Optional[float]
    """null: no cap"""
    spent_usd: float
    reserved_usd: float
    remaining_usd: Optional[float]


class Port(TypedDict):
    """A TCP port inside a sandbox."""

    port: int
    path: str
    """where requests to it are sent"""
    url: NotRequired[Optional[str]]


class PortList(TypedDict):
    """TCP ports that programs in the sandbox listen on."""

    ports: List[Port]
    next_cursor: Optional[str]
    """null: the last page"""
    truncated: bool


class PortUrl(TypedDict):
    """A signed URL for a port."""

    session_id: str
    port: int
    url: Optional[str]
    path: str
    expires_at: str


class Ready(TypedDict):
    """The daemon serves."""

    status: str


class Refused(TypedDict):
    """A member of an archive that was not unpacked."""

    path: str
    reason: str


class Removal(TypedDict):
    """Sessions that were ended."""

    destroyed: List[str]
    """their sandboxes are gone"""
    failed: List[RemovalFailure]
    skipped: List[RemovalSkip]
    dry_run: bool


class RemovalFailure(TypedDict):
    """A session that could not be ended."""

    id: str
    error: ErrorDetail


class RemovalSkip(TypedDict):
    """A session that was left alone."""

    id: str
    reason: str


class Run(TypedDict):
    """Code that has run in a context."""

    context_id: str
    number: int
    state: Literal['waiting', 'running', 'ok', 'error', 'interrupted', 'timeout', 'crashed', 'cancelled', 'failed']
    exit_code: Optional[int]
    warning: Optional[str]
    cause: Optional[str]
    """why the interpreter was lost"""
    replaced: Optional[str]
    """why it runs in a new interpreter"""
    context_lost: bool
    """variables are gone"""
    dropped_messages: int
    stdout_bytes: int
    stderr_bytes: int
    duration_seconds: float
    stdout: str
    stderr: str
    results: List[RunResult]
    """values and displays, in their order"""
    error: Optional[RunError]
    truncated: bool


class RunError(TypedDict):
    """An exception."""

    name: str
    """ZeroDivisionError"""
    value: Optional[str]
    frames: List[RunFrame]
    """the innermost last"""
    traceback: NotRequired[str]
    """as the interpreter prints it"""


class RunEvent(TypedDict):
    """Of the events stdout, stderr, display, result, error and done of a run."""

    text: NotRequired[str]
    data: NotRequired[Dict[str, Any]]
    state: NotRequired[str]
    """of done, with the other fields of the run"""


class RunFrame(TypedDict):
    """A call that had not returned."""

    file: Optional[str]
    line: Optional[int]
    function: Optional[str]
    text: Optional[str]
    """the line of source"""


class RunResult(TypedDict):
    """A value or a display: by media type."""

    type: Literal['result', 'display']
    data: Dict[str, Any]
    """text/plain, image/png, …"""


class Sandbox(TypedDict):
    """The sandbox of a session."""

    id: Optional[str]
    """null: there is no sandbox at the moment"""
    state: Literal['none', 'creating', 'ready', 'unknown', 'freezing', 'frozen', 'thawing', 'frozen_by_others', 'crashed', 'destroying']
    generation: int
    """number of this sandbox in its session"""
    pid: NotRequired[Optional[int]]
    """first process of the sandbox, as the host sees it"""
    container: NotRequired[Optional[str]]
    """container of the sandbox, with the backends docker and gvisor"""
    pod: NotRequired[Optional[str]]
    """pod of the sandbox, with the backend kubernetes"""
    pod_node: NotRequired[Optional[str]]
    """node of the cluster that has the pod; empty until one has it"""
    attempts: int
    """failed attempts to start it"""
    error: Optional[ErrorDetail]
    """why it could not be started, or not be removed"""
    last_error: Optional[str]
    """the old name of error"""
    previous_end: Optional[str]
    """why the sandbox before this one ended"""
    isolation: Optional[Dict[str, Any]]
    """the walls in force, as read back from the kernel"""


class ScopeLine(TypedDict):
    """The first line of a scope's answer."""

    owner: str


class Session(TypedDict):
    """A session, live or ended."""

    id: str
    """ses_…"""
    owner: str
    """whose session it is; empty without one"""
    key: Optional[str]
    """the caller's own name for it"""
    on_behalf_of: Optional[str]
    labels: Dict[str, str]
    state: Literal['open', 'paused', 'ending', 'ended']
    end_reason: Optional[str]
    """idle, lease, lifetime, deleted, evicted, crashed, shutdown, budget, replaced, failed, teardown or node lost, with a detail behind a colon"""
    generation: int
    """number of its current or last sandbox"""
    template: Optional[str]
    flavor: Optional[str]
    choice: str
    """how the flavor was chosen"""
    backend: Optional[str]
    network: Optional[str]
    """none, open, or host where the backend has no wall to the network"""
    limits: Limits
    """in force"""
    mounts: List[Mount]
    """directories of the host in its sandboxes"""
    secrets: List[str]
    """names of its secrets"""
    keep_files: bool
    kept: Optional[KeptWorkspace]
    """the workspace that was saved last"""
    auto_restart: bool
    auto_resume: bool
    on_timeout: Optional[str]
    """kill or pause"""
    lease_seconds: Optional[float]
    """how long its lease is; null: none"""
    timeout: Optional[float]
    """the old name of lease_seconds"""
    idle_timeout_seconds: Optional[float]
    """without use until it ends; null: none"""
    idle_timeout: Optional[float]
    """the old name of idle_timeout_seconds"""
    max_lifetime_seconds: Optional[float]
    """from its creation until it ends; null: none"""
    max_lifetime: Optional[float]
    """the old name of max_lifetime_seconds"""
    created_at: str
    started_at: Optional[str]
    last_activity_at: Optional[str]
    ended_at: Optional[str]
    expires_at: Optional[str]
    """end of its lease"""
    expires_at_clock: Optional[str]
    time_remaining_seconds: Optional[float]
    """until the next clock ends it"""
    time_remaining: Optional[float]
    """the old name of time_remaining_seconds"""
    time_remaining_clock: Optional[str]
    lease_remaining_seconds: Optional[float]
    lease_remaining: Optional[float]
    """the old name of lease_remaining_seconds"""
    idle_remaining_seconds: Optional[float]
    idle_remaining: Optional[float]
    """the old name of idle_remaining_seconds"""
    lifetime_remaining_seconds: Optional[float]
    lifetime_remaining: Optional[float]
    """the old name of lifetime_remaining_seconds"""
    next_end: Optional[NextEnd]
    sandbox: Sandbox
    usage: Optional[Usage]
    """the last measurement"""
    executions: ExecutionCount
    kept_alive_by: Optional[Activity]
    """why the idle clock does not run"""
    spent_usd: float
    approval: Optional[str]
    """the approval that its sandbox waits for"""
    node: Optional[str]
    """where it is, in a cluster"""


class SessionChange(TypedDict):
    """A session, with a message about the change."""

    id: str
    """ses_…"""
    owner: str
    """whose session it is; empty without one"""
    key: Optional[str]
    """the caller's own name for it"""
    on_behalf_of: Optional[str]
    labels: Dict[str, str]
    state: Literal['open', 'paused', 'ending', 'ended']
    end_reason: Optional[str]
    """idle, lease, lifetime, deleted, evicted, crashed, shutdown, budget, replaced, failed, teardown or node lost, with a detail behind a colon"""
    generation: int
    """number of its current or last sandbox"""
    template: Optional[str]
    flavor: Optional[str]
    choice: str
    """how the flavor was chosen"""
    backend: Optional[str]
    network: Optional[str]
    """none, open, or host where the backend has no wall to the network"""
    limits: Limits
    """in force"""
    mounts: List[Mount]
    """directories of the host in its sandboxes"""
    secrets: List[str]
    """names of its secrets"""
    keep_files: bool
    kept: Optional[KeptWorkspace]
    """the workspace that was saved last"""
    auto_restart: bool
    auto_resume: bool
    on_timeout: Optional[str]
    """kill or pause"""
    lease_seconds: Optional[float]
    """how long its lease is; null: none"""
    timeout: Optional[float]
    """the old name of lease_seconds"""
    idle_timeout_seconds: Optional[float]
    """without use until it ends; null: none"""
    idle_timeout: Optional[float]
    """the old name of idle_timeout_seconds"""
    max_lifetime_seconds: Optional[float]
    """from its creation until it ends; null: none"""
    max_lifetime: Optional[float]
    """the old name of max_lifetime_seconds"""
    created_at: str
    started_at: Optional[str]
    last_activity_at: Optional[str]
    ended_at: Optional[str]
    expires_at: Optional[str]
    """end of its lease"""
    expires_at_clock: Optional[str]
    time_remaining_seconds: Optional[float]
    """until the next clock ends it"""
    time_remaining: Optional[float]
    """the old name of time_remaining_seconds"""
    time_remaining_clock: Optional[str]
    lease_remaining_seconds: Optional[float]
    lease_remaining: Optional[float]
    """the old name of lease_remaining_seconds"""
    idle_remaining_seconds: Optional[float]
    idle_remaining: Optional[float]
    """the old name of idle_remaining_seconds"""
    lifetime_remaining_seconds: Optional[float]
    lifetime_remaining: Optional[float]
    """the old name of lifetime_remaining_seconds"""
    next_end: Optional[NextEnd]
    sandbox: Sandbox
    usage: Optional[Usage]
    """the last measurement"""
    executions: ExecutionCount
    kept_alive_by: Optional[Activity]
    """why the idle clock does not run"""
    spent_usd: float
    approval: Optional[str]
    """the approval that its sandbox waits for"""
    node: Optional[str]
    """where it is, in a cluster"""
    message: str


class SessionList(TypedDict):
    """A page of sessions."""

    sessions: List[Session]
    next_cursor: Optional[str]
    """null: the last page"""
    total: int
    max_sessions: Optional[int]
    missing_nodes: NotRequired[List[str]]
    """nodes of the cluster that did not answer"""


class StdinWritten(TypedDict):
    """The bytes of input that were written, and whether the input is closed."""

    written: int
    closed: bool


class StoredFile(TypedDict):
    """A file by its name."""

    name: str
    size_bytes: int
    size: int
    """the old name of size_bytes"""
    modified: Optional[str]


class StoredList(TypedDict):
    """Stored files."""

    files: List[StoredFile]
    next_cursor: Optional[str]
    """null: the last page"""


class StoredUrl(TypedDict):
    """A URL that gives read access."""

    name: str
    size_bytes: NotRequired[int]
    size: NotRequired[int]
    """the old name of size_bytes"""
    url: str
    expires_at: str


class TeardownStatus(TypedDict):
    """A teardown by URL."""

    status: str


class TeardownToken(TypedDict):
    """A URL that tears a sandbox down."""

    session_id: str
    url: str
    expires_at: str
    grace_seconds: float
    grace: float
    """the old name of grace_seconds"""


class Template(TypedDict):
    """A root file system."""

    name: str
    default: bool


class TemplateList(TypedDict):
    """Templates."""

    templates: List[Template]
    next_cursor: Optional[str]
    """null: the last page"""


class Tool(TypedDict):
    """A tool for models."""

    name: str
    title: str
    description: str
    annotations: Dict[str, bool]
    needs_session: bool
    input_schema: Dict[str, Any]
    """JSON schema of its arguments"""


class ToolContent(TypedDict):
    """A part of a tool's answer."""

    type: str
    """text, image, resource, …"""
    text: NotRequired[str]
    name: NotRequired[str]
    uri: NotRequired[str]
    size_bytes: NotRequired[int]
    size: NotRequired[int]
    """the old name of size_bytes"""
    mime_type: NotRequired[Optional[str]]
    data: NotRequired[str]
    """base64"""


class ToolList(TypedDict):
    """Tools for models."""

    tools: List[Tool]
    next_cursor: Optional[str]
    """null: the last page"""


class ToolResult(TypedDict):
    """The result of a tool."""

    content: List[ToolContent]
    is_error: bool
    structured: Optional[Dict[str, Any]]


class Unpacked(TypedDict):
    """The entries of an archive that were unpacked."""

    unpacked: int
    """files and directories"""
    unpacked_bytes: int
    bytes: int
    """the old name of unpacked_bytes"""
    refused: List[Refused]
    refused_truncated: bool


class Usage(TypedDict):
    """The resource usage of a sandbox."""

    cpu_seconds: float
    memory_bytes: int
    memory_peak_bytes: int
    disk_bytes: int
    pids: int
    oom_kills: int
    measured_at: str


class UsageHistory(TypedDict):
    """The resource usage of a sandbox over time."""

    session_id: str
    generation: Optional[int]
    interval_seconds: float
    """between samples"""
    interval: float
    """the old name of interval_seconds"""
    samples: List[UsageSample]


class UsageSample(TypedDict):
    """The resource usage of a sandbox at one time."""

    time: str
    cpu_seconds: float
    cpu_percent: float
    """100 for one core"""
    memory_bytes: int
    disk_bytes: int
    pids: int


class WaitResult(TypedDict):
    """Whether a condition was met."""

    met: bool
    reason: Optional[str]
    stream: Optional[str]
    offset: Optional[int]
    waited_seconds: float
    execution: Execution


class Whoami(TypedDict):
    """The caller, as the daemon has identified them."""

    owner: str
    principal: Optional[str]
    on_behalf_of: Optional[str]
    roles: List[str]
    auth_mode: str
    peer: Optional[str]
    uid: NotRequired[int]
    """over a unix socket"""
    operator: bool
    """the caller may ask for sessions of other owners"""


class ChangeSandbox(TypedDict):
    """Start the sandbox, or request one of another flavor: its body."""

    flavor: NotRequired[Optional[str]]
    memory_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    disk_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    cpus: NotRequired[Optional[float]]
    pids: NotRequired[Optional[int]]
    memory: NotRequired[Optional[Union[int, str]]]
    """the old name of memory_bytes"""
    disk: NotRequired[Optional[Union[int, str]]]
    """the old name of disk_bytes"""


class CreateContext(TypedDict):
    """Start a context: an interpreter that keeps its state: its body."""

    language: NotRequired[Optional[str]]
    cwd: NotRequired[Optional[str]]
    env: NotRequired[Optional[Dict[str, str]]]


class CreatePortUrl(TypedDict):
    """Create a signed URL for a port: its body."""

    valid_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    generation: NotRequired[Optional[int]]
    valid_for: NotRequired[Optional[Union[float, str]]]
    """the old name of valid_seconds"""
    expires: NotRequired[Optional[Union[float, str]]]
    """the old name of valid_seconds"""


class CreateSession(TypedDict):
    """Create a session, or return the one with this key: its body."""

    key: NotRequired[Optional[str]]
    template: NotRequired[Optional[str]]
    flavor: NotRequired[Optional[str]]
    backend: NotRequired[Optional[str]]
    node: NotRequired[Optional[str]]
    node_labels: NotRequired[Optional[Dict[str, str]]]
    labels: NotRequired[Optional[Dict[str, str]]]
    memory_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    disk_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    cpus: NotRequired[Optional[float]]
    pids: NotRequired[Optional[int]]
    network: NotRequired[Optional[str]]
    lease_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    idle_timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    max_lifetime_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    on_timeout: NotRequired[Optional[str]]
    mounts: NotRequired[Optional[List[Dict[str, Any]]]]
    preload: NotRequired[Optional[bool]]
    auto_restart: NotRequired[Optional[bool]]
    auto_resume: NotRequired[Optional[bool]]
    keep_files: NotRequired[Optional[bool]]
    env: NotRequired[Optional[Dict[str, str]]]
    secrets: NotRequired[Optional[Dict[str, str]]]
    timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of lease_seconds"""
    idle_timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of idle_timeout_seconds"""
    max_lifetime: NotRequired[Optional[Union[float, str]]]
    """the old name of max_lifetime_seconds"""
    memory: NotRequired[Optional[Union[int, str]]]
    """the old name of memory_bytes"""
    disk: NotRequired[Optional[Union[int, str]]]
    """the old name of disk_bytes"""


class CreateStoredFileUrl(TypedDict):
    """Create a URL that gives read access to a stored file: its body."""

    valid_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    valid_for: NotRequired[Optional[Union[float, str]]]
    """the old name of valid_seconds"""


class CreateTeardownUrl(TypedDict):
    """Create a URL with which a closing web page tears the sandbox down: its body."""

    valid_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    grace_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    grace: NotRequired[Optional[Union[float, str]]]
    """the old name of grace_seconds"""
    valid_for: NotRequired[Optional[Union[float, str]]]
    """the old name of valid_seconds"""


class DecideApproval(TypedDict):
    """Approve or deny a request: its body."""

    decision: str
    reason: NotRequired[Optional[str]]
    once: NotRequired[Optional[bool]]
    session: NotRequired[Optional[bool]]


class EditFile(TypedDict):
    """Replace a text that occurs exactly once in a file: its body."""

    path: str
    old: str
    new: str
    replace_all: NotRequired[Optional[bool]]


class ExchangeLoginToken(TypedDict):
    """Exchange a one-time token for the cookie: its body."""

    token: str


class Execute(TypedDict):
    """Run code in a session, which is created on demand with the options of POST /sessions: its body."""

    code: str
    language: NotRequired[Optional[str]]
    session_id: NotRequired[Optional[str]]
    key: NotRequired[Optional[str]]
    timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    env: NotRequired[Optional[Dict[str, str]]]
    secrets: NotRequired[Optional[Dict[str, str]]]
    cwd: NotRequired[Optional[str]]
    ephemeral: NotRequired[Optional[bool]]
    cancel_on_disconnect: NotRequired[Optional[bool]]
    template: NotRequired[Optional[str]]
    flavor: NotRequired[Optional[str]]
    backend: NotRequired[Optional[str]]
    node: NotRequired[Optional[str]]
    node_labels: NotRequired[Optional[Dict[str, str]]]
    labels: NotRequired[Optional[Dict[str, str]]]
    memory_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    disk_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    cpus: NotRequired[Optional[float]]
    pids: NotRequired[Optional[int]]
    network: NotRequired[Optional[str]]
    lease_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    idle_timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    max_lifetime_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    on_timeout: NotRequired[Optional[str]]
    mounts: NotRequired[Optional[List[Dict[str, Any]]]]
    preload: NotRequired[Optional[bool]]
    auto_restart: NotRequired[Optional[bool]]
    auto_resume: NotRequired[Optional[bool]]
    keep_files: NotRequired[Optional[bool]]
    timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of timeout_seconds"""
    idle_timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of idle_timeout_seconds"""
    max_lifetime: NotRequired[Optional[Union[float, str]]]
    """the old name of max_lifetime_seconds"""
    memory: NotRequired[Optional[Union[int, str]]]
    """the old name of memory_bytes"""
    disk: NotRequired[Optional[Union[int, str]]]
    """the old name of disk_bytes"""


class ExecuteOptions(TypedDict):
    """Run code in a session, which is created on demand with the options of POST /sessions: its options."""

    session_id: NotRequired[Optional[str]]
    key: NotRequired[Optional[str]]
    timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    env: NotRequired[Optional[Dict[str, str]]]
    secrets: NotRequired[Optional[Dict[str, str]]]
    cwd: NotRequired[Optional[str]]
    ephemeral: NotRequired[Optional[bool]]
    cancel_on_disconnect: NotRequired[Optional[bool]]
    template: NotRequired[Optional[str]]
    flavor: NotRequired[Optional[str]]
    backend: NotRequired[Optional[str]]
    node: NotRequired[Optional[str]]
    node_labels: NotRequired[Optional[Dict[str, str]]]
    labels: NotRequired[Optional[Dict[str, str]]]
    memory_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    disk_bytes: NotRequired[Optional[Union[int, str]]]
    """bytes, or text such as 512m, 2g"""
    cpus: NotRequired[Optional[float]]
    pids: NotRequired[Optional[int]]
    network: NotRequired[Optional[str]]
    lease_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    idle_timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    max_lifetime_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    on_timeout: NotRequired[Optional[str]]
    mounts: NotRequired[Optional[List[Dict[str, Any]]]]
    preload: NotRequired[Optional[bool]]
    auto_restart: NotRequired[Optional[bool]]
    auto_resume: NotRequired[Optional[bool]]
    keep_files: NotRequired[Optional[bool]]
    timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of timeout_seconds"""
    idle_timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of idle_timeout_seconds"""
    max_lifetime: NotRequired[Optional[Union[float, str]]]
    """the old name of max_lifetime_seconds"""
    memory: NotRequired[Optional[Union[int, str]]]
    """the old name of memory_bytes"""
    disk: NotRequired[Optional[Union[int, str]]]
    """the old name of disk_bytes"""


class KeepSessionAlive(TypedDict):
    """The lease ends at now plus lease_seconds; never earlier than before unless exact: its body."""

    lease_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    exact: NotRequired[Optional[bool]]
    timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of lease_seconds"""


class MakeDirectory(TypedDict):
    """Create a directory and its parents: its body."""

    path: str


MoveFile = TypedDict("MoveFile", {"from": "str", "to": "str", "replace": "NotRequired[bool]"})


class OpenScope(TypedDict):
    """Open a scope: an owner, new or given, whose sessions end with this connection: its body."""

    owner: NotRequired[Optional[str]]


class ResizeTerminal(TypedDict):
    """Resize the terminal of an execution: its body."""

    cols: int
    rows: int


class RunCode(TypedDict):
    """Run code in a context: its body."""

    code: str
    timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    cancel_on_disconnect: NotRequired[Optional[bool]]
    timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of timeout_seconds"""


class SignalExecution(TypedDict):
    """Send a signal to an execution, or to its process tree: its body."""

    tree: NotRequired[Optional[bool]]
    signal: NotRequired[Optional[Union[str, int]]]
    """SIGTERM, TERM or 15"""


class StartExecution(TypedDict):
    """Run a program in a session: its body."""

    argv: NotRequired[Optional[List[str]]]
    command: NotRequired[Optional[str]]
    code: NotRequired[Optional[str]]
    language: NotRequired[Optional[str]]
    env: NotRequired[Optional[Dict[str, str]]]
    secrets: NotRequired[Optional[Dict[str, str]]]
    cwd: NotRequired[Optional[str]]
    user: NotRequired[Optional[str]]
    timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    background: NotRequired[Optional[bool]]
    generation: NotRequired[Optional[int]]
    key: NotRequired[Optional[str]]
    output_full: NotRequired[Optional[str]]
    cancel_on_disconnect: NotRequired[Optional[bool]]
    stdin: NotRequired[Optional[Union[str, bool]]]
    """the complete input, or true: the input is sent to the stdin route"""
    tty: NotRequired[Optional[Union[bool, Dict[str, Any]]]]
    """a terminal instead of pipes"""
    timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of timeout_seconds"""


class UpdateOwnerBudget(TypedDict):
    """Change the cap of an owner; 0: no cap: its body."""

    cap_usd: float


class UpdateSession(TypedDict):
    """Change labels, clocks and policy: its body."""

    labels: NotRequired[Optional[Dict[str, str]]]
    secrets: NotRequired[Optional[Dict[str, str]]]
    lease_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    idle_timeout_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    max_lifetime_seconds: NotRequired[Optional[Union[float, str]]]
    """seconds, or text such as 90s, 30m, 4h"""
    on_timeout: NotRequired[Optional[str]]
    auto_restart: NotRequired[Optional[bool]]
    auto_resume: NotRequired[Optional[bool]]
    keep_files: NotRequired[Optional[bool]]
    timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of lease_seconds"""
    idle_timeout: NotRequired[Optional[Union[float, str]]]
    """the old name of idle_timeout_seconds"""
    max_lifetime: NotRequired[Optional[Union[float, str]]]
    """the old name of max_lifetime_seconds"""


class UpdateSessionBudget(TypedDict):
    """Change the cap and the automatic approval of a session: its body."""

    auto_approve: NotRequired[Optional[bool]]
    cap_usd: NotRequired[Optional[float]]
