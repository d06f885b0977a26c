# SPDX-License-Identifier: Apache-2.0
"""A workspace that somebody has removed is there again for the next use."""
import shutil

import pytest

from conftest import WALLS
from test_warm_python import warm_session
from toolbox import ok


@pytest.mark.parametrize("use", ["command", "code", "files", "tool"])
def test_a_home_directory_that_root_has_removed_inside_is_made_again(make_daemon, use):
    daemon = make_daemon(backend=WALLS)
    session = warm_session(daemon)
    removed = daemon.execute(session, argv=["sh", "-c", "cd /; rm -rf /home/user; ls /home"], user="root")
    assert (removed["exit_code"], removed["stdout"]) == (0, ""), removed
    if use == "command":
        assert daemon.execute(session, command="pwd; echo kept > note; cat note")["stdout"] == "/home/user\nkept\n"
    elif use == "code":
        result = daemon.execute(session, code="import os; open('note', 'w').write('kept'); print(os.getcwd())", language="python")
        assert result["stdout"] == "/home/user\n", result
    elif use == "files":
        daemon.api("PUT", f"/sessions/{session}/files?path=note", b"kept", expect=201)
    else:
        ok(daemon, session, "write", path="note", content="kept")
    told = daemon.execute(session, command="cat ~/note; stat -c '%U %a' ~")
    assert told["stdout"].replace("\n", "") == "keptuser 755", told
    assert told["generation"] == 1


@pytest.mark.parametrize("use", ["command", "files"])
def test_a_workspace_that_is_gone_from_the_host_comes_with_a_new_sandbox(make_daemon, use):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    session = daemon.session()
    where = daemon.execute(session, command="pwd; echo lost > note")["stdout"].strip()
    assert where.endswith("/workspace")
    shutil.rmtree(where)
    if use == "files":
        daemon.api("PUT", f"/sessions/{session}/files?path=other", b"kept", expect=201)
    again = daemon.execute(session, command="ls; echo kept > note; cat note")
    assert again["exit_code"] == 0 and again["generation"] == 2
    assert again["reset_reason"] == "crashed: workspace removed"
    assert daemon.execute(session, command="cat note")["stdout"] == "kept\n"
