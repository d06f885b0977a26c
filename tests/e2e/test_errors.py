# SPDX-License-Identifier: Apache-2.0
"""Codes of errors: the document and docs/reference/errors.md have every one that the source has."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Parts whose errors a client of the API never sees: other programs, and what keeps a daemon from starting.
ELSEWHERE = ("cli/", "init/", "launcher/", "bench/", "daemon/", "config/", "audit/")
ONLY_AT_START = {"redis_too_old", "store_foreign", "store_newer", "store_taken", "store_version", "state_in_use", "id_not_safe"}
NAMED = re.compile(r'error_named\(\s*[^,]+,\s*[^,;]+?,\s*"([a-z_0-9]+)"')
ROWS = re.compile(r'\{ E[A-Z]+, ERR_[A-Z_]+, "([a-z_]+)"|\[SHARE_[A-Z]+\] = \{ "([a-z_]+)"|refuse\(err, "(token_[a-z_]+)"|fail\(archive, ERR_[A-Z_]+, "([a-z_]+)"')


def codes_of_the_source():
    for path in sorted((ROOT / "src").rglob("*.c")):
        if str(path.relative_to(ROOT / "src")).startswith(ELSEWHERE):
            continue
        text = path.read_text()
        yield from ((name, path.name) for name in NAMED.findall(text))
        yield from ((name, path.name) for found in ROWS.findall(text) for name in found if name)


def codes_of_the_document(daemon):
    return daemon.request("GET", "/openapi.json").json["components"]["schemas"]["ErrorDetail"]["properties"]["code"]


def test_the_document_has_every_code(make_daemon):
    schema = codes_of_the_document(make_daemon(backend="direct"))
    assert list(schema["x-codes"]) == schema["enum"] and len(set(schema["enum"])) == len(schema["enum"]) > 200
    missing = {f"{name} ({where})" for name, where in codes_of_the_source() if name not in schema["enum"] and name not in ONLY_AT_START}
    assert not missing, f"rows for src/api/document/codes.c: {sorted(missing)}"


def test_the_page_has_every_code(make_daemon):
    codes = codes_of_the_document(make_daemon(backend="direct"))["x-codes"]
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    for code, row in codes.items():
        assert f"| `{code}` | {row['meaning']} |" in page, f"{code}: run scripts/sdk"
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", (ROOT / "docs" / "reference" / "http-api.md").read_text().split("## Failures")[1].split("\n## ")[0]))
    assert named - {"end_reason"} <= set(codes), named - set(codes)


def test_codes_come_with_their_status(make_daemon):
    daemon = make_daemon(backend="direct")
    codes = codes_of_the_document(daemon)["x-codes"]
    session = daemon.session()
    calls = [("GET", "/sessions/ses_nope", None), ("POST", "/sessions", {"x": 1}), ("GET", "/nope", None), ("PUT", "/sessions", None),
             ("GET", "/sessions?x=1", None), ("GET", f"/sessions/{session}/files?path=nope", None), ("GET", "/approvals/apr_x", None),
             ("GET", f"/sessions/{session}/contexts/ctx_x", None), ("POST", "/sessions", {"template": "../x"}), ("POST", "/nodes/x/drain", {})]
    for method, path, body in calls:
        answer = daemon.api(method, path, body)
        assert codes[answer.json["error"]["code"]]["status"] == answer.status, (method, path, answer.json)


def test_hints_are_in_the_words_of_their_reader(make_daemon):
    daemon = make_daemon(backend="direct")

    def hint(surface):
        return daemon.api("GET", "/sessions/ses_nope", headers={"X-Sandglass-Surface": surface} if surface else {}, expect=404).json["error"]["hint"]

    assert "GET /api/v1/sessions" in hint(None) and hint("nobody") == hint(None)
    assert "sandglass ls" in hint("cli") and "/api/" not in hint("cli")
    assert "client.sessions()" in hint("sdk")
    shown = daemon.cli("inspect", "ses_nope")
    assert shown.returncode != 0 and "sandglass ls" in shown.stderr and "/api/" not in shown.stderr
    known = daemon.cli("run", "--template", "nope:1", "--backend", "direct", "--", "true")
    assert known.returncode == 125 and "GET " not in known.stderr
    tool = daemon.api("POST", "/tools/nope", {}, expect=404).json["error"]
    assert tool["hint"] == "GET /api/v1/tools lists the tools"


def test_an_ended_session_is_explained_to_its_reader(make_daemon):
    daemon = make_daemon(backend="direct")
    session = daemon.session()
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    refused = daemon.cli("exec", session, "--", "true")
    assert refused.returncode == 125 and "sandglass session create" in refused.stderr, refused.stderr
    for surface, word in (("sdk", "client.session()"), ("mcp", "session_id"), ("http", "open a new session")):
        answer = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"]}, headers={"X-Sandglass-Surface": surface}, expect=410)
        assert word in answer.json["error"]["hint"]
