# SPDX-License-Identifier: Apache-2.0
"""Checks of the Python clients: checks.py sync|async|code. Each has a sandbox of its own. Prints {name: null or why it failed}.

The checks are written once, for the asynchronous client; the synchronous one is used through Waiting, whose calls can be awaited too.
"""
import asyncio
import inspect
import json
import os
import sys
import time
import uuid

import e2b
import httpx

kind = sys.argv[1]


def call(function):
    async def awaited(*arguments, **named):
        value = await asyncio.to_thread(function, *arguments, **named)
        return Waiting(value) if type(value).__module__.startswith("e2b") and not isinstance(value, type) else value
    return awaited


class Waiting:
    """A synchronous object of the client whose methods are awaited, here and in what they give."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        value = getattr(self.of, name)
        if inspect.ismethod(value) or inspect.isfunction(value) or type(value).__name__ in ("class_method_variant", "partial"):
            return call(value)
        return Waiting(value) if type(value).__module__.startswith("e2b.sandbox_sync") else value


if kind == "code":
    import e2b_code_interpreter
    Sandbox = e2b_code_interpreter.AsyncSandbox
elif kind == "async":
    Sandbox = e2b.AsyncSandbox
else:
    Sandbox = Waiting(e2b.Sandbox)
checks = {}


def check(function):
    checks[function.__name__.replace("_", " ")] = function
    return function


async def until(condition):
    end = time.monotonic() + 10
    while not await condition():
        assert time.monotonic() < end, "not within ten seconds"
        await asyncio.sleep(0.02)


async def fails(awaitable, *types):
    try:
        await awaitable
    except types as problem:
        return problem
    raise AssertionError(f"no {types}")


if kind != "code":
    @check
    async def a_sandbox_runs_and_is_killed_once(box):
        assert await box.is_running()
        assert await box.kill()
        assert not await box.is_running()
        assert not await box.kill()

    @check
    async def info_and_timeout(box):
        info = await box.get_info()
        assert info.state == e2b.SandboxState.RUNNING and info.sandbox_id == box.sandbox_id
        await box.set_timeout(1)

        async def ended():
            return not await box.is_running()
        await until(ended)

    @check
    async def a_list_filters_by_metadata(box):
        name = uuid.uuid4().hex
        one = await Sandbox.create(metadata={"name": name, "other": "a b&c=d"})
        pages = (e2b.AsyncSandbox if kind == "async" else e2b.Sandbox).list(query=e2b.SandboxQuery(metadata={"name": name, "other": "a b&c=d"}))
        items = await pages.next_items() if kind == "async" else pages.next_items()
        assert [item.sandbox_id for item in items] == [one.sandbox_id] and not pages.has_next
        await one.kill()

    @check
    async def pause_and_connect(box):
        await box.files.write("kept", "1")
        await box.pause()
        assert not await box.is_running()
        again = await Sandbox.connect(box.sandbox_id)
        assert await again.files.read("kept") == "1"

    @check
    async def output_exit_code_and_variables(box):
        done = await box.commands.run("echo out; echo err >&2; echo $A", envs={"A": "1"})
        assert (done.stdout, done.stderr, done.exit_code) == ("out\n1\n", "err\n", 0)
        assert (await fails(box.commands.run("exit 3"), e2b.CommandExitException)).exit_code == 3
        await fails(box.commands.run("sleep 30", timeout=0.5), e2b.TimeoutException)

    @check
    async def input_of_a_command(box):
        command = await box.commands.run("head -c 5", background=True, stdin=True)
        await box.commands.send_stdin(command.pid, "hello")
        assert (await command.wait()).stdout == "hello"

    @check
    async def processes_are_listed_and_killed(box):
        command = await box.commands.run("sleep 60", background=True)
        assert command.pid in [one.pid for one in await box.commands.list()]
        assert await box.commands.kill(command.pid)
        assert not await box.commands.kill(command.pid)

    @check
    async def files_are_written_read_listed_and_removed(box):
        await box.files.write("d/a.txt", "hé")
        assert await box.files.read("d/a.txt") == "hé"
        assert bytes(await box.files.read("d/a.txt", format="bytes")) == "hé".encode()
        await box.files.write_files([{"path": "d/b", "data": "1"}, {"path": "d/c", "data": b"\0\xff"}])
        assert [one.name for one in await box.files.list("d")] == ["a.txt", "b", "c"]
        await box.files.rename("d/b", "d/e")
        assert await box.files.exists("d/e") and not await box.files.exists("d/b")
        assert await box.files.make_dir("d/f") and not await box.files.make_dir("d/f")
        await box.files.remove("d")
        await fails(box.files.list("d"), e2b.NotFoundException)

    @check
    async def a_directory_is_watched(box):
        await box.files.make_dir("w")
        seen = []
        if kind == "async":
            handle = await box.files.watch_dir("w", on_event=seen.append)
        else:
            handle = await box.files.watch_dir("w")
        await box.files.write("w/x", "1")

        async def told():
            if kind == "sync":
                seen.extend(await handle.get_new_events())
            return any(event.name == "x" and event.type == e2b.FilesystemEventType.WRITE for event in seen)
        await until(told)
        await handle.stop()

    @check
    async def signed_urls(box):
        await box.files.write("signed", "secret")
        url = (box.of if kind == "sync" else box).download_url("signed", use_signature_expiration=60)
        async with httpx.AsyncClient() as client:
            assert (await client.get(url)).text == "secret"
            assert (await client.get(url.replace("path=signed", "path=other"))).status_code == 401

    @check
    async def a_terminal_echoes(box):
        seen = bytearray()
        if kind == "async":
            terminal = await box.pty.create(e2b.PtySize(rows=24, cols=91), on_data=seen.extend)
            await box.pty.send_stdin(terminal.pid, b"stty size; exit\n")
            await terminal.wait()
        else:
            terminal = await box.pty.create(e2b.PtySize(rows=24, cols=91))
            await box.pty.send_stdin(terminal.pid, b"stty size; exit\n")
            await asyncio.to_thread(terminal.of.wait, on_pty=seen.extend)
        assert b"24 91" in seen, seen

    @check
    async def usage_is_measured(box):
        async def measured():
            return await box.get_metrics()
        await until(measured)

    @check
    async def a_wrong_key_and_an_unknown_template(box):
        await fails(Sandbox.create(api_key="e2b_" + "0" * 64), e2b.AuthenticationException)
        await fails(Sandbox.create("no-such-template"), e2b.SandboxException)

    @check
    async def a_snapshot_is_made(box):
        await box.create_snapshot()
else:
    @check
    async def state_results_and_output(box):
        await box.run_code("x = 1")
        done = await box.run_code("print('out'); x += 1; x")
        assert done.text == "2" and done.logs.stdout == ["out\n"]
        assert done.execution_count == 2

    @check
    async def contexts(box):
        context = await box.create_code_context(cwd="/tmp")
        assert (await box.run_code("import os; os.getcwd()", context=context)).text == "/tmp"
        assert [one.id for one in await box.list_code_contexts()][-1] == context.id
        await box.restart_code_context(context)
        assert (await box.run_code("os", context=context)).error.name == "NameError"
        await box.remove_code_context(context)

    @check
    async def errors_languages_and_variables(box):
        assert (await box.run_code("1 / 0")).error.name == "ZeroDivisionError"
        assert (await box.run_code("echo $A", language="bash", envs={"A": "1"})).logs.stdout == ["1\n"]
        assert (await box.run_code("1 + 1", language="javascript")).text == "2"

    @check
    async def a_timeout_interrupts_the_code(box):
        await fails(box.run_code("while True: pass", timeout=1), Exception)
        assert (await box.run_code("3")).text == "3"


async def run(name, limit, found):
    async with limit:
        box = await Sandbox.create(timeout=120)
        try:
            await asyncio.wait_for(checks[name](box), 40)
            found[name] = None
        except BaseException as problem:
            found[name] = f"{type(problem).__name__}: {problem}"[:500]
        finally:
            try:
                await box.kill()
            except Exception:
                pass


async def main():
    limit, found = asyncio.Semaphore(3), {}
    await asyncio.gather(*(run(name, limit, found) for name in checks))
    print(json.dumps(found), flush=True)
    os._exit(0)  # the threads of the client's transport do not always end well


asyncio.run(main())
