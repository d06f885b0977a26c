# SPDX-License-Identifier: Apache-2.0
"""sandglass session, ls, inspect, why, rm, cp."""
import json
import re

import pytest

from conftest import wait_for

UNKNOWN = "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa"


def create(daemon, *arguments):
    result = daemon.cli("session", "create", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_create_prints_the_bare_id(daemon):
    result = daemon.cli("session", "create")
    assert re.fullmatch(r"ses_[a-z0-9]+\n", result.stdout)
    assert result.stderr == ""


def test_the_same_key_is_the_same_session(daemon):
    first = create(daemon, "--key", "mine")
    assert create(daemon, "--key", "mine") == first
    assert json.loads(daemon.cli("inspect", "key:mine").stdout)["id"] == first


def test_what_is_wrong_with_a_session_is_said(daemon):
    assert daemon.cli("session", "create", "--memory", "much").returncode == 2
    assert daemon.cli("session", "create", "--network", "sometimes").returncode == 2
    create(daemon, "--key", "k", "--memory", "512m")
    refused = daemon.cli("session", "create", "--key", "k", "--memory", "1g")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("sandglass: ")


def test_the_list_has_stable_columns_in_a_pipe(daemon):
    session = create(daemon, "--key", "k", "--label", "a=b", "--label", "c=d", "--timeout", "10m")
    row = daemon.cli("ls").stdout.rstrip("\n").split("\t")
    assert row[:3] == [session, "k", "open"]
    assert (len(row), row[6], row[8]) == (9, "lease", "a=b,c=d")
    assert row[5].endswith("Z") and 0 < int(row[7]) <= 600


def test_the_list_filters_and_has_short_and_long_names(daemon):
    one, two = create(daemon, "--label", "n=1"), create(daemon, "--label", "n=2")
    assert sorted(daemon.cli("ls", "-q").stdout.split()) == sorted([one, two])
    assert daemon.cli("session", "ls", "-q", "--label", "n=2").stdout.split() == [two]
    assert daemon.cli("ls", "--state", "paused", "-q").stdout == ""
    assert {each["id"] for each in json.loads(daemon.cli("ls", "--json").stdout)["sessions"]} == {one, two}


def test_an_empty_list_is_empty(daemon):
    result = daemon.cli("ls")
    assert (result.stdout, result.returncode) == ("", 0)


def test_inspect_is_json_for_people(daemon):
    session = create(daemon)
    text = daemon.cli("inspect", session).stdout
    assert text.startswith("{\n  ") and json.loads(text)["id"] == session


def test_why_names_the_clock_and_what_extends_it(daemon):
    session = create(daemon, "--idle-timeout", "5m", "--max-lifetime", "1h")
    text = daemon.cli("why", session).stdout
    assert re.search(rf"{session} ends in (5m0s|5m|4m\d+s) \(.*Z\), when its idle timeout runs out \(idle\)", text), text
    assert "Extended by" in text and re.search(r"lease +off", text)
    leased = create(daemon, "--timeout", "2m")
    assert f"session extend --timeout 1h {leased}" in daemon.cli("why", leased).stdout
    aged = create(daemon, "--max-lifetime", "3m")
    assert "(lifetime)" in daemon.cli("why", aged).stdout


def test_extend_gives_more_time(daemon):
    session = create(daemon, "--timeout", "1m")
    result = daemon.cli("session", "extend", "--timeout", "1h", session)
    assert (result.returncode, result.stdout.endswith("Z\n")) == (0, True)
    assert json.loads(daemon.cli("inspect", session).stdout)["lease_remaining"] > 3000


def test_pause_and_resume(daemon):
    session = create(daemon)
    daemon.cli("exec", session, "--", "true")
    paused = daemon.cli("session", "pause", session)
    if paused.returncode == 1 and "no freezer" in paused.stderr:
        pytest.skip("cannot pause here: " + paused.stderr.strip())
    assert paused.returncode == 0, paused.stderr
    assert json.loads(daemon.cli("inspect", session).stdout)["state"] == "paused"
    resumed = daemon.cli("session", "resume", session)
    assert (resumed.returncode, resumed.stdout) == (0, f"{session}\n")
    assert json.loads(daemon.cli("inspect", session).stdout)["state"] == "open"


def test_rm_removes_several_and_prints_them(daemon):
    one, two, other = create(daemon), create(daemon), create(daemon)
    result = daemon.cli("rm", one, two)
    assert (result.stdout.split(), result.returncode) == ([one, two], 0)
    assert daemon.cli("ls", "-q").stdout.split() == [other]


def test_rm_goes_on_behind_one_that_fails(daemon):
    session = create(daemon)
    result = daemon.cli("rm", UNKNOWN, session)
    assert (result.stdout.split(), result.returncode) == ([session], 1)
    assert UNKNOWN in result.stderr


def test_rm_with_force_does_not_mind_what_is_gone(daemon):
    session = create(daemon)
    daemon.cli("rm", session)
    assert daemon.cli("rm", session).returncode == 0, "it is gone, as asked for"
    assert daemon.cli("rm", UNKNOWN).returncode == 1
    assert daemon.cli("rm", "-f", session, UNKNOWN).returncode == 0


def test_why_and_inspect_tell_about_a_session_that_has_ended(daemon):
    session = create(daemon, "--idle-timeout", "5m")
    daemon.execute(session, ["/bin/echo", "last words"])
    daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout_seconds": 1}, expect=200)
    wait_for(lambda: daemon.ended(session), "the idle end")
    told = daemon.cli("why", session)
    assert told.returncode == 0, told.stderr
    for part in ("has ended: idle", "/bin/echo", "--idle-timeout"):
        assert part in told.stdout, told.stdout
    shown = json.loads(daemon.cli("inspect", session).stdout)
    assert (shown["state"], shown["end_reason"]) == ("ended", "idle")


def test_rm_by_label_and_all(daemon):
    one, two = create(daemon, "--label", "n=1"), create(daemon, "--label", "n=2")
    assert daemon.cli("rm", "--label", "n=1").stdout.split() == [one]
    document = json.loads(daemon.cli("session", "rm", "--all", "--json").stdout)
    assert document["destroyed"] == [two]
    assert daemon.cli("ls", "-q").stdout == ""


def test_rm_of_nothing_in_particular_is_refused(daemon):
    session = create(daemon)
    assert daemon.cli("rm").returncode == 2
    assert daemon.cli("rm", "--all", session).returncode == 2
    assert daemon.cli("ls", "-q").stdout.strip() == session


@pytest.mark.parametrize("arguments", [("inspect", UNKNOWN), ("why", UNKNOWN), ("ps", UNKNOWN), ("logs", UNKNOWN),
                                       ("session", "pause", UNKNOWN), ("rm", UNKNOWN)])
def test_an_unknown_session_is_1_in_words_and_in_json(daemon, arguments):
    result = daemon.cli(*arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("sandglass: ")
    document = json.loads(daemon.cli("--json", *arguments).stdout)
    assert document.get("error") or document["failed"]


def test_owners_do_not_see_each_other(daemon):
    mine = {"SANDGLASS_ON_BEHALF_OF": "ada"}
    session = daemon.cli("session", "create", environment=mine).stdout.strip()
    assert daemon.cli("ls", "-q").stdout == ""
    assert daemon.cli("ls", "-q", environment=mine).stdout.strip() == session
    assert daemon.cli("exec", session, "--", "true").returncode == 125


def test_files_go_in_and_out(daemon, tmp_path):
    session = create(daemon)
    data = bytes(range(256)) * 4096
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "in").chmod(0o755)
    copied = daemon.cli("cp", tmp_path / "in", f"{session}:deep/er/file")
    if "unknown route" in copied.stderr.lower():
        pytest.skip("the daemon has no file routes yet: " + copied.stderr.strip())
    assert copied.returncode == 0, copied.stderr
    assert daemon.cli("exec", session, "--", "test", "-x", "deep/er/file").returncode == 0
    assert daemon.cli("cp", f"{session}:deep/er/file", tmp_path / "out").returncode == 0
    assert (tmp_path / "out").read_bytes() == data
    missing = daemon.cli("cp", f"{session}:nothing", tmp_path / "none")
    assert missing.returncode == 1 and not (tmp_path / "none").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
