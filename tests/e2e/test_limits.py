"""What a caller may ask for at most: the host's size, the operator's ceiling, and shares of one owner."""
import json

import pytest

MAX = {"memory": "1g", "cpus": 1, "pids": 512, "disk": "2g", "lifetime": "2h", "timeout": "1h", "idle_timeout": "1h",
       "network": "none"}
OVER = [("memory", "1000g"), ("cpus", 1000), ("pids", 4000001), ("disk", "900g"), ("max_lifetime", 0), ("timeout", 7200),
        ("idle_timeout", 0), ("network", "open")]


def on_behalf_of(owner):
    return {"X-Sandglass-On-Behalf-Of": owner}


@pytest.fixture
def limited(make_daemon):
    return make_daemon(backend="direct", settings={
        "sandbox": {"max": MAX},
        "flavors": [{"name": "small"}, {"name": "big", "memory": "2g", "price_per_hour": 0, "max": {"memory": "2g"}}],
        "owners": [{"name": "ci", "max": {"pids": 600, "network": "open"}}]})


def assert_over_limit(answer, field):
    assert answer.status in (400, 403), answer.body
    error = answer.json["error"]
    assert error["code"] == "over_limit" and not error["retryable"]
    assert error["message"].startswith(field) and "limit of" in error["message"] and "at most" in error["hint"]


@pytest.mark.parametrize("field,value", OVER)
def test_more_than_the_ceiling_is_refused_and_makes_nothing(limited, field, value):
    answer = limited.api("POST", "/sessions", {field: value})
    assert_over_limit(answer, field)
    assert limited.api("GET", "/sessions").json["total"] == 0


def test_the_ceiling_holds_for_changes(limited):
    session = limited.session(preload=False)
    shown = limited.api("GET", f"/sessions/{session}").json
    assert shown["limits"]["memory_bytes"] == 1 << 30 and shown["max_lifetime"] == 7200
    for field, value in OVER[4:7]:
        assert_over_limit(limited.api("PATCH", f"/sessions/{session}", {field: value}), field)
    assert_over_limit(limited.api("POST", f"/sessions/{session}/keepalive", {"timeout": 3601}), "timeout")
    for field, value in OVER[:4]:
        assert_over_limit(limited.api("POST", f"/sessions/{session}/sandbox", {field: value}), field)
    assert limited.api("POST", f"/sessions/{session}/sandbox", {"flavor": "big"}).status == 202


def test_an_owner_may_have_a_ceiling_of_its_own(limited):
    limited.api("POST", "/sessions", {"pids": 600, "preload": False}, headers=on_behalf_of("ci/7"), expect=201)
    assert_over_limit(limited.api("POST", "/sessions", {"pids": 601}, headers=on_behalf_of("ci/7")), "pids")
    assert_over_limit(limited.api("POST", "/sessions", {"pids": 600}, headers=on_behalf_of("else")), "pids")


def test_more_than_the_host_has_is_refused_without_any_setting(make_daemon):
    daemon = make_daemon(backend="direct")
    for option, value in (("--memory", "99t"), ("--cpus", "999"), ("--pids", "4000001"), ("--disk", "15t")):
        made = daemon.cli("session", "create", option, value)
        assert made.returncode != 0 and "above the limit" in made.stderr and "of this host" in made.stderr
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_a_flavor_above_the_ceiling_does_not_start(make_daemon, work):
    config = work / "sandglass.yaml"
    config.write_text(json.dumps({"sandbox": {"max": {"memory": "1g"}},
                                  "flavors": [{"name": "small"}, {"name": "big", "memory": "2g"}]}))
    daemon = make_daemon(start=False)
    checked = daemon.cli("config", "check", "--config", config)
    assert checked.returncode != 0 and 'memory of "big" is above sandbox.max.memory' in checked.stderr
