# SPDX-License-Identifier: Apache-2.0
"""Pages of lists: the same parameters, the same end, for every list."""
import pytest

FLAVORS = [{"name": f"f{number}", "memory": "64m"} for number in range(5)]


def walk(daemon, path, field, limit):
    """All entries by pages, and how many pages there were."""
    found, pages, cursor = [], 0, ""
    while cursor is not None:
        page = daemon.api("GET", f"{path}?limit={limit}{cursor and f'&cursor={cursor}'}", expect=200).json
        assert 0 < len(page[field]) <= limit
        found, pages, cursor = found + page[field], pages + 1, page["next_cursor"]
    return found, pages


def lists(document):
    """Routes whose answer has a next_cursor."""
    for path, methods in document["paths"].items():
        answer = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
        name = answer.get("$ref", "").rsplit("/", 1)[-1]
        fields = document["components"]["schemas"].get(name, {}).get("properties", {})
        if "next_cursor" in fields or any(part.get("type") == "array" and "$ref" in part["items"] for part in fields.values()):
            yield path, fields, {parameter["name"] for parameter in methods["get"]["parameters"]}


# Fixed sets and searches; an audit log is read from its end, samples by time, a saved workspace is one document, and so is a session.
WITHOUT_PAGES = {"/api/v1/capacity", "/api/v1/sessions/{session}/files/glob", "/api/v1/sessions/{session}/files/grep",
                 "/api/v1/sessions/{session}/usage", "/api/v1/sessions/{session}/kept", "/api/v1/sessions/{session}"}


def test_every_list_has_pages(make_daemon):
    document = make_daemon(backend="direct").request("GET", "/openapi.json").json
    found = {path: (fields, parameters) for path, fields, parameters in lists(document)}
    assert {"/api/v1/approvals", "/api/v1/keys", "/api/v1/templates", "/api/v1/flavors", "/api/v1/nodes"} <= set(found)
    for path, (fields, parameters) in found.items():
        if path not in WITHOUT_PAGES:
            assert "next_cursor" in fields and {"limit", "cursor"} <= parameters, path
            assert fields["next_cursor"]["type"] == ["string", "null"], path


def test_pages_of_tools_backends_and_files(daemon):
    for path, field in (("/tools", "tools"), ("/backends", "backends")):
        whole = daemon.api("GET", path, expect=200).json
        assert whole["next_cursor"] is None
        assert walk(daemon, path, field, 1) == (whole[field], len(whole[field]))
    session = daemon.session()
    daemon.execute(session, command="mkdir d; touch d/a d/b d/c")
    first = daemon.api("GET", f"/sessions/{session}/files/list?path=d&limit=2", expect=200).json
    assert [entry["path"] for entry in first["entries"]] == ["a", "b"] and first["next_cursor"] == "2"
    last = daemon.api("GET", f"/sessions/{session}/files/list?path=d&limit=2&cursor={first['next_cursor']}", expect=200).json
    assert [entry["path"] for entry in last["entries"]] == ["c"] and last["next_cursor"] is None


def test_pages_of_flavors_have_all_of_them_once(make_daemon):
    daemon = make_daemon(backend="direct", settings={"flavors": FLAVORS})
    whole = daemon.api("GET", "/flavors", expect=200).json
    assert whole["next_cursor"] is None and [one["name"] for one in whole["flavors"]] == [f"f{number}" for number in range(5)]
    assert walk(daemon, "/flavors", "flavors", 2) == (whole["flavors"], 3)
    assert walk(daemon, "/flavors", "flavors", 5) == (whole["flavors"], 1)


def test_pages_of_contexts_and_ports(daemon):
    path = f"/sessions/{daemon.session()}"
    made = [daemon.api("POST", path + "/contexts", {"language": "bash"}, expect=201).json["id"] for _ in range(3)]
    found, pages = walk(daemon, path + "/contexts", "contexts", 1)
    assert ({one["id"] for one in found}, pages) == (set(made), 3)
    ports = daemon.api("GET", path + "/ports", expect=200).json
    assert ports["next_cursor"] is None and ports["ports"] == []


@pytest.mark.parametrize("path", ["/sessions", "/approvals", "/templates", "/flavors", "/nodes", "SESSION/executions", "SESSION/history", "SESSION/contexts",
                                  "SESSION/files/list", "SESSION/storage"])
@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=1000000", "cursor=nothing"])
def test_wrong_pages_are_refused(make_daemon, path, query):
    daemon = make_daemon(backend="direct")
    session = daemon.session()
    error = daemon.api("GET", f"{path.replace('SESSION', f'/sessions/{session}')}?{query}", expect=400).json["error"]
    assert error["code"] == "invalid_parameter" and query.split("=")[0] in error["message"], error
