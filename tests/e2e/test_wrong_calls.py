# SPDX-License-Identifier: Apache-2.0
"""A call that is refused for what it asks has made nothing: no session and no sandbox."""
import pytest

from conftest import WALLS
from mcp_client import Http


def made(daemon):
    """The sessions there are, and how many were ever made."""
    metrics = daemon.request("GET", "/metrics").body.decode()
    counters = [line for line in metrics.splitlines() if line.startswith("sandglass_sessions_created_total")]
    return daemon.api("GET", "/sessions").json["total"], counters


EXECUTE = [
    {},
    {"code": ""},
    {"code": 1},
    {"code": "1", "colour": "red"},
    {"code": "1", "language": "cobol"},
    {"code": "1", "language": 7},
    {"code": "1", "timeout": -1},
    {"code": "1", "timeout": "soon"},
    {"code": "1", "timeout": 10**12},
    {"code": "1", "env": {"A=B": "c"}},
    {"code": "1", "env": {"": "c"}},
    {"code": "1", "env": {"A": 1}},
    {"code": "1", "env": {f"N{i}": "" for i in range(100_000)}},
    {"code": "1", "secrets": {"A=B": "secret-value"}},
    {"code": "1", "cwd": 3},
    {"code": "1", "session_id": "ses_00000000000000000000000000"},
    {"code": "1", "session_id": "x", "key": "y"},
    {"code": "1", "ephemeral": "yes"},
    {"code": "1", "ephemeral": True, "key": "k"},
]


def test_execute(daemon):
    before = made(daemon)
    for body in EXECUTE:
        answer = daemon.api("POST", "/execute", body)
        assert answer.status in (400, 404, 413), (str(body)[:200], answer.body)
        assert made(daemon) == before, str(body)[:200]


SESSIONS = [
    {"template": "unheard-of"},
    {"template": "unheard-of", "preload": True},
    {"flavor": "unheard-of"},
    {"backend": "unheard-of"},
    {"network": "some"},
    {"memory": -1},
    {"timeout": "soon"},
    {"colour": "red"},
    {"env": {"A=B": "c"}},
    {"key": ""},
]


def test_sessions(daemon):
    before = made(daemon)
    for body in SESSIONS:
        if WALLS == "kubernetes" and body.get("template") == "unheard-of":
            continue  # which images there are is known to the nodes alone, when the first pod needs one
        answer = daemon.api("POST", "/sessions", body)
        assert answer.status in (400, 404), (body, answer.body)
        assert made(daemon) == before, body


TOOLS = [
    ("bash", {}),
    ("bash", {"command": ""}),
    ("bash", {"command": 1}),
    ("bash", {"command": "true", "timeout": "soon"}),
    ("bash", {"command": "true", "timeout": -5}),
    ("bash", {"command": "true", "colour": "red"}),
    ("bash", {"command": "true", "session_id": 4}),
    ("bash", {"command": "true", "session_id": "ses_00000000000000000000000000"}),
    ("bash", {"command": "true", "session_id": "a", "key": "b"}),
    ("python", {}),
    ("python", {"code": ["1"]}),
    ("read", {"path": ""}),
    ("write", {"path": "a"}),
    ("edit", {"path": "a", "old": 1}),
    ("execute_python", {}),
    ("execute_python", {"code": "1", "timeout": 10**6}),
    ("execute_python", {"code": "1", "language": "python"}),
    ("sandbox_create", {"flavor": "unheard-of"}),
    ("sandbox_create", {"wait": -1}),
]


@pytest.mark.parametrize("key", [{}, {"key": "named"}], ids=["own", "key"])
def test_tools_over_mcp(daemon, key):
    before = made(daemon)
    for tool, arguments in TOOLS:
        answer, _ = Http(daemon).ask("tools/call", {"name": tool, "arguments": {**key, **arguments}})
        assert "error" in answer or answer["result"]["isError"], (tool, arguments, answer)
        assert made(daemon) == before, (tool, arguments)


def test_tools_over_http(daemon):
    before = made(daemon)
    for arguments in [arguments for tool, arguments in TOOLS if tool == "execute_python"]:
        assert daemon.api("POST", "/tools/execute_python", arguments).status == 400
        assert made(daemon) == before, arguments
