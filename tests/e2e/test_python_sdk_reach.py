# SPDX-License-Identifier: Apache-2.0
"""The Python SDK reaches what the API has: flavors, approvals, budgets, tools, usage, stored and kept files."""
import asyncio
import os
import subprocess
import sys
import tarfile

import pytest

from conftest import ROOT, WALLS, wait_for

SOURCE = str(ROOT / "sdk" / "python" / "src")
sys.path.insert(0, SOURCE)

import sandglass  # noqa: E402
from sandglass import AsyncClient, Client  # noqa: E402

FLAVORS = [{"name": "cpu-basic"}, {"name": "roomy", "memory": "256m", "price_per_hour": 0},
           {"name": "dear", "memory": "256m", "price_per_hour": 2.5, "needs_approval": True}]
STORE = 'echo content >file && curl -sf --abstract-unix-socket "$SANDGLASS_STORAGE" -T file http://sandbox/storage/'


@pytest.fixture
def client(make_daemon, backend):
    settings = {"flavors": FLAVORS if backend != "direct" else FLAVORS[:1]}
    with Client(make_daemon(backend=backend, settings=settings).url) as client:
        yield client


with_walls = pytest.mark.parametrize("backend", [WALLS])


@with_walls
def test_a_sandbox_of_another_flavor(client):
    assert [flavor["name"] for flavor in client.flavors()] == ["cpu-basic", "roomy", "dear"]
    with client.session() as session:
        assert session.sandbox("roomy") is None
        assert session.raw["flavor"] == "roomy"
        with pytest.raises(sandglass.Invalid) as caught:
            session.sandbox("golden")
        assert caught.value.code == "flavor_unknown"


@with_walls
def test_approvals_are_listed_waited_for_and_decided(client):
    with client.session() as session:
        approval = session.sandbox("dear")
        assert (approval.state, approval.flavor, approval.session_id) == ("pending", "dear", session.id)
        assert approval.question and approval.refresh(wait=0.01) == "pending"
        [found] = client.approvals()
        assert found.id == approval.id
        assert found.deny("too dear") == "denied"
        assert approval.refresh(wait=60) == "denied" and "too dear" in approval.result
        again = session.sandbox("dear")
        assert client.approval(again.id).approve("go on", session=True) == "approved"
        wait_for(lambda: session.refresh()["flavor"] == "dear", "the approved sandbox is the session's")
        assert client.approvals() == [] and [one.state for one in client.approvals("approved")] == ["approved"]
        session.teardown()
        assert session.sandbox("dear") is None, "approved for the session"


@with_walls
def test_budgets_of_a_session_and_of_its_owner(client):
    ours = client.with_owner("ann")
    with ours.session() as session:
        assert session.budget()["cap_usd"] == 5
        assert session.set_budget(cap_usd=2)["cap_usd"] == 2
        session.set_budget(auto_approve=True)
        assert session.budget()["auto_approve"] is True
        assert client.set_budget(100, owner="ann")["cap_usd"] == 100
        assert ours.budget()["cap_usd"] == session.budget()["owner"]["cap_usd"] == 100
        assert client.budget("bob")["spent_usd"] == 0


def test_tools_are_listed_and_called(client):
    tools = {tool["name"]: tool for tool in client.tools()}
    assert tools["bash"]["input_schema"]["type"] == "object"
    with client.session() as session:
        result = session.call_tool("bash", {"command": "echo from a tool"})
        assert (result.text.strip(), result.is_error, result.structured["exit_code"]) == ("from a tool", False, 0)
        assert session.call_tool("bash", {"command": "exit 3"}).is_error
        with pytest.raises(sandglass.Invalid):
            session.call_tool("bash", {"comand": "true"})
    listed = client.call_tool("manage_session", {"operation": "list"})
    assert not listed.is_error and listed.text


@with_walls
def test_what_sessions_of_an_owner_use(client):
    with client.with_owner("ann").session() as session:
        session.run("true")
        assert session.usage()["memory_bytes"] > 0
        [found] = client.sessions(owner="ann", usage=True)
        assert found.id == session.id and found.raw["usage"]["measured_at"]
        assert client.sessions() == []
        assert client.delete_all(owner="*", dry_run=True)["destroyed"] == [session.id]


def test_stored_files_outlive_the_session(client, tmp_path):
    with client.session() as session:
        session.run(STORE + "a%20b", check=True)
        assert [(file["name"], file["size"]) for file in session.storage.list()] == [("a b", 8)]
        assert session.storage.read("a b") == b"content\n"
        assert "signature=" in session.storage.url("a b", valid_for=60)
    session.storage.download("a b", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"content\n"
    session.storage.remove("a b")
    assert session.storage.list() == []
    with pytest.raises(sandglass.NotFound):
        session.storage.read("a b")


def test_kept_files_outlive_the_session(client, tmp_path):
    with client.session(keep_files=True) as session:
        session.files.write("out/plot.txt", "plot")
    assert ("out/plot.txt", 4) in [(file["path"], file["size"]) for file in session.kept.list()]
    assert session.kept.read("out/plot.txt") == b"plot"
    session.kept.download("out/plot.txt", tmp_path / "plot.txt")
    session.kept.archive(tmp_path / "all.tar")
    with tarfile.open(tmp_path / "all.tar") as archive:
        assert archive.extractfile("out/plot.txt").read() == (tmp_path / "plot.txt").read_bytes() == b"plot"


@with_walls
def test_the_same_for_asyncio(client):
    async def story():
        async with AsyncClient(client.url) as ours, await ours.session(keep_files=True) as session:
            assert (await session.call_tool("python", {"code": "print(6 * 7)"})).text.strip() == "42"
            assert await session.sandbox("roomy") is None
            await session.run("true")
            assert (await session.usage())["memory_bytes"] > 0
            await session.teardown()
            approval = await session.sandbox("dear")
            assert [one.id for one in await ours.approvals()] == [approval.id]
            waiting = asyncio.ensure_future(ours.wait_for_approval(approval, 60))
            assert await ours.approve((await ours.approvals())[0]) == "approved" == await waiting
            assert (await session.set_budget(cap_usd=1))["cap_usd"] == 1 == (await session.budget())["cap_usd"]
            assert len(await ours.flavors()) == 3 and await ours.tools() and "cap_usd" in await ours.budget()
            await session.run(STORE + "file")
            assert await session.read_stored((await session.stored_files())[0]["name"]) == b"content\n"
            await session.delete()
            assert "file" in [file["path"] for file in await session.kept_files()]
            assert await session.read_kept("file") == b"content\n"

    asyncio.run(story())


SYSTEM = """
mount -t tmpfs none /run && mkdir /run/sandglass && unset XDG_RUNTIME_DIR SANDGLASS_URL
"$1" -c 'import os, socket, time; s = socket.socket(socket.AF_UNIX); s.bind("/run/sandglass/new"); s.listen(); os.rename("/run/sandglass/new", "/run/sandglass/sandglass.sock"); time.sleep(100)' &
while ! [ -S /run/sandglass/sandglass.sock ]; do sleep 0.02; done; chmod 666 /run/sandglass/sandglass.sock
setpriv --reuid 54321 --regid 54321 --clear-groups env PYTHONPATH="$2" "$1" -c 'import sandglass; print(sandglass.Client().url)'
chmod 600 /run/sandglass/sandglass.sock
setpriv --reuid 54321 --regid 54321 --clear-groups env PYTHONPATH="$2" "$1" -c 'import sandglass; print(sandglass.Client().url)'
kill $!
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a /run of its own")
def test_a_user_without_a_daemon_uses_the_system_s():
    result = subprocess.run(["unshare", "-m", "sh", "-c", SYSTEM, "sh", sys.executable, SOURCE], capture_output=True, text=True, timeout=100)
    assert result.stdout.split() == ["unix:/run/sandglass/sandglass.sock", "unix:/tmp/sandglass-54321/sandglass.sock"], result


@with_walls
def test_the_record_of_an_ended_session_has_what_the_session_had(client):
    with client.session() as session:
        session.run("true")
        alive = session.refresh()
    ended = session.refresh()
    for name in ("template", "flavor", "choice", "backend", "network", "limits", "on_timeout", "idle_timeout", "max_lifetime"):
        assert ended[name] == alive[name], name
