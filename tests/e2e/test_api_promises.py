# SPDX-License-Identifier: Apache-2.0
"""What may change within /api/v1 (docs/reference/http-api.md, What may change): the document of today keeps every line of api-v1.txt."""
import copy
import pathlib
import re

import pytest

from api_promises import promises

PROMISED = (pathlib.Path(__file__).parent / "api-v1.txt").read_text().splitlines()


def broken_by(document):
    """Promises that a document does not keep, and new demands on old routes."""
    today = set(promises(document))
    routes = {line for line in PROMISED if ":" not in line}
    lost = {line for line in PROMISED if line not in today}
    # A field that was there sometimes may always be there now.
    lost = {line for line in lost if line.replace(": sometimes ", ": always ") not in today}
    demands = {line for line in today - set(PROMISED) if re.search(r": must ", line) and line.split(": ")[0] in routes}
    return sorted(lost | demands)


@pytest.fixture
def document(make_daemon):
    return make_daemon(backend="direct").request("GET", "/openapi.json").json


def test_nothing_that_was_promised_has_gone(document):
    assert len(PROMISED) > 1000
    assert not broken_by(document), "docs/reference/http-api.md says what may change; keep the old name for a release, as src/api/renames.c does"


def test_the_rule_finds_what_breaks_clients(document):
    broken = copy.deepcopy(document)
    session = broken["components"]["schemas"]["Session"]["properties"]
    session["lease"] = session.pop("lease_seconds")
    session["generation"]["type"] = "string"
    create = broken["paths"]["/api/v1/sessions"]["post"]
    create["requestBody"]["content"]["application/json"]["schema"]["required"] = ["flavor"]
    del broken["paths"]["/api/v1/flavors"]
    found = "\n".join(broken_by(broken))
    assert all(word in found for word in ("lease_seconds", "generation", "must field flavor", "GET /api/v1/flavors")), found


def test_what_may_be_added_breaks_nothing(document):
    document["components"]["schemas"]["Session"]["properties"]["colour"] = {"type": "string"}
    document["components"]["schemas"]["Session"]["properties"]["state"]["enum"].append("dreaming")
    body = document["paths"]["/api/v1/sessions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    body["properties"]["colour"] = {"type": "string"}
    document["paths"]["/api/v1/colours"] = {"get": document["paths"]["/api/v1/flavors"]["get"]}
    assert not broken_by(document)


def test_every_route_follows_the_rules_of_the_page(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert "default" in operation["responses"], where
            if not path.startswith("/api/v1/"):
                continue
            last = path.rsplit("/", 1)[1]
            names_a_thing = last.startswith("{") or last.endswith("s") or method != "post"
            verbs = {"keepalive", "pause", "resume", "sandbox", "teardown", "execute", "interrupt", "restart", "run", "signal", "resize", "stdin", "mkdir",
                     "move", "edit", "url", "drain", "teardown-token"}
            assert names_a_thing or last in verbs, f"{where}: a new verb belongs into this list and the docs"
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            assert "/tools/" in path or body.get("additionalProperties") in (False, None), f"{where}: unknown fields must be refused"
