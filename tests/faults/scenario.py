# SPDX-License-Identifier: Apache-2.0
"""One case of the fault sweep: a daemon with one fault does everything once; a healthy one over the same state has to keep what was answered.

A promise is an answer with 2xx. A request may fail as long as the answer says so; it must not hang, nor must the daemon crash, nor may anything be left.
"""
import functools
import http.client
import io
import json
import mmap
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import conftest  # noqa: E402

DEADLINE_S = 30  # of one request, on a busy machine
RETENTION_S = 3
TRACE_BYTES = 64 << 20
HEADER = struct.Struct("4Q")  # count, fired, lasting, limit: struct trace of inject.c
TRANSPARENT = ("EINTR", "EAGAIN", "short", "ECONNABORTED")  # nobody may notice
LINES = 400
COUNTER = f"i=0; while [ $i -lt {LINES} ]; do echo $i; i=$((i+1)); [ $((i % 100)) = 0 ] && sleep 0.05; done; true"
COUNTED = "".join(f"{n}\n" for n in range(LINES)).encode()
LONG = "".join(f"{n}\n" for n in range(1, 8001)).encode()


@functools.lru_cache
def modules():
    """What is loaded, in the order of inject.c: the program, what the kernel adds, inject.c itself, libraries."""
    text = subprocess.run(["ldd", conftest.SANDGLASS], capture_output=True, text=True).stdout
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    return ["sandglass", names[0], "faults.so", *names[1:]]


def module_name(number):
    return modules()[int(number)] if int(number) < len(modules()) else f"module {number}"


class Dead(Exception):
    """The daemon is gone, as it may be: the scenario ends here."""


class Case:
    def __init__(self, backend, fault=None):
        self.fault = fault
        self.backend = backend
        self.action = fault.rsplit("=", 1)[1] if fault else None
        self.module = module_name(fault.split("@")[1].split("+")[0]) if fault else None
        self.problems = []
        self.sessions = {}  # id: the labels that were answered, and those that were asked for
        self.deleted = {}  # id: when
        self.ran = []  # session, execution, what it printed
        self.files = []  # session, path, bytes
        self.replaced = set()  # sessions whose sandbox we have torn down ourselves
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sgf-"))
        os.chmod(self.directory, 0o711)
        self.trace_path = self.directory / "trace"
        with open(self.trace_path, "wb") as trace:
            trace.truncate(TRACE_BYTES if fault is None else 4096)
        self.daemon = conftest.Daemon(self.directory, backend=backend, settings={
            "session": {"retention": RETENTION_S}, "shutdown": {"policy": "keep", "timeout": 10}})
        self.injected = {"LD_PRELOAD": str(conftest.BUILD / "tests" / "faults" / "faults.so"),
                         "SANDGLASS_FAULT_TRACE": str(self.trace_path), **({"SANDGLASS_FAULT": fault} if fault else {})}

    # --- requests

    def problem(self, text):
        self.problems.append(text)

    def may_fail(self):
        return self.action is not None and self.action not in TRANSPARENT

    def ask(self, method, path, body=None, headers=None):
        """An answer with 2xx, or None when it was refused; Dead when there is no daemon any more."""
        try:
            answer = self.daemon.api(method, path, body, headers=headers, timeout=DEADLINE_S)
        except TimeoutError:
            self.problem(f"{method} {path}: no answer in {DEADLINE_S} s")
            raise Dead()
        except (OSError, http.client.HTTPException) as problem:
            if self.is_gone():
                raise Dead()
            if not self.may_fail():
                self.problem(f"{method} {path}: {problem!r}")
            return None
        if answer.status < 300:
            return answer
        self.check_refusal(method, path, answer)
        return None

    def check_refusal(self, method, path, answer):
        try:
            error = answer.json["error"]
            told = error["code"] and error["message"] and error["retryable"] in (True, False)
        except (ValueError, KeyError, TypeError):
            told = False
        if not told or not self.may_fail():
            self.problem(f"{method} {path}: {answer.status} {answer.body[:500]!r}")

    def is_gone(self):
        """A connection breaks a moment before its process can be waited for."""
        deadline = time.monotonic() + 1
        while self.daemon.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.daemon.process.poll() is not None

    # --- what is done

    def create(self, **options):
        headers = {"Idempotency-Key": options.pop("idempotency")} if "idempotency" in options else None
        answer = self.ask("POST", "/sessions", options, headers)
        if answer is None:
            return None
        session = answer.json["id"]
        self.sessions.setdefault(session, [options.get("labels", {})])
        return session

    def run(self, session, expected, **body):
        answer = session and self.ask("POST", f"/sessions/{session}/executions", body)
        if not answer:
            return None
        result = answer.json
        if not body.get("background"):
            self.check_result(result, expected if len(expected) < 60000 else None)
        self.ran.append((session, result["id"], expected))
        return result

    def check_result(self, result, expected):
        """What the answer itself says: all of it, or why not."""
        told = result.get("error") or result.get("output_error") or result["state"] != "exited"
        if told and not self.may_fail():
            self.problem(f"execution: {json.dumps({**result, 'stdout': None})[:600]}")
        elif not told and (result["exit_code"] != 0 or (expected is not None and result["stdout"].encode() != expected)):
            self.problem(f"execution without its output: {json.dumps(result)[:600]}")

    def put(self, session, path, content):
        if session and self.ask("PUT", f"/sessions/{session}/files?path={path}", content):
            self.files.append((session, path, content))
            self.check_file(session, path, content)

    def check_file(self, session, path, content):
        answer = self.ask("GET", f"/sessions/{session}/files?path={path}")
        if answer and answer.body != content:
            self.problem(f"{path} has {len(answer.body)} bytes instead of {len(content)}")

    def use_archive(self, session):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo("inside.txt")
            member.size = 5
            archive.addfile(member, io.BytesIO(b"hello"))
        if not self.ask("PUT", f"/sessions/{session}/archive?path=unpacked", packed.getvalue(), {"Content-Type": "application/x-tar"}):
            return
        self.files.append((session, "unpacked/inside.txt", b"hello"))
        answer = self.ask("GET", f"/sessions/{session}/archive?path=unpacked")
        if answer:
            names = tarfile.open(fileobj=io.BytesIO(answer.body)).getnames()
            if not any(name.endswith("inside.txt") for name in names):
                self.problem(f"the archive has {names}")

    def use_context(self, session):
        answer = self.ask("POST", f"/sessions/{session}/contexts", {"language": "bash"})
        if not answer:
            return
        context = f"/sessions/{session}/contexts/{answer.json['id']}"
        first = self.ask("POST", context + "/run", {"code": "x=41; echo begin"})
        second = self.ask("POST", context + "/run", {"code": "echo $((x + 1))"})
        for answer, expected in ((first, "begin\n"), (second, "42\n")):
            result = answer and answer.json
            if not result or result["state"] != "ok" or result["replaced"]:
                if result and not self.may_fail():
                    self.problem(f"context: {answer.body[:500]!r}")
            elif result["stdout"] != expected and not (expected == "42\n" and first is None):
                self.problem(f"context: {result['stdout']!r} instead of {expected!r}")
        self.ask("DELETE", context)

    def label(self, session, labels):
        tried = self.sessions[session]
        tried.append(labels)  # from now on either may be there
        if self.ask("PATCH", f"/sessions/{session}", {"labels": labels}):
            self.sessions[session] = [labels]

    def delete(self, session):
        if session is None:
            return
        labels = self.sessions.pop(session)
        answer = self.ask("DELETE", f"/sessions/{session}")
        if answer:
            self.deleted[session] = time.monotonic()
            if answer.json["state"] != "ended":
                self.problem(f"DELETE: {answer.body[:300]!r}")
        else:
            self.sessions[session] = labels + ["or ended"]

    def tear_down(self, session):
        """The next sandbox has the files, or says that it has not."""
        self.replaced.add(session)
        asked = self.ask("POST", f"/sessions/{session}/sandbox/teardown", {})
        result = self.run(session, b"", argv=["true"]) if asked else None  # one that was refused may have happened
        if self.may_fail() and (result is None or result["files_were_reset"]):
            self.files = [row for row in self.files if row[0] != session]

    def work(self):
        """Everything once. A step whose session could not be made is left out."""
        first = self.create(key="first", labels={"step": "1"})
        if first:
            self.run(first, LONG[:20000].rsplit(b"\n", 1)[0] + b"\n", command=f"seq 1 8000 | head -c 20000 | sed '$d'")
            self.run(first, COUNTED, command=COUNTER, background=True)
            self.put(first, "some.bin", os.urandom(1000) * 200)
            self.use_archive(first)
            self.use_context(first)
            self.label(first, {"step": "2"})
            self.run(first, b"terminal\r\n", argv=["echo", "terminal"], tty={"cols": 80, "rows": 24})
            self.run(first, b"input", argv=["cat"], stdin="input")
        second = self.create(idempotency="once", labels={})
        again = self.create(idempotency="once", labels={})
        if second and again and second != again:
            self.problem("an Idempotency-Key made two sessions")
        if first and self.ask("POST", f"/sessions/{first}/pause", {}):
            self.ask("POST", f"/sessions/{first}/resume", {})
            self.run(first, b"resumed\n", argv=["echo", "resumed"])
        self.run(second, LONG, command="seq 1 8000")
        self.delete(second)
        third = self.create(keep_files=True, labels={})
        if third:
            self.put(third, "kept.txt", b"kept")
            self.tear_down(third)
        self.ask("GET", "/sessions?limit=10")
        if first:
            self.ask("GET", f"/sessions/{first}/history?limit=100")
            self.run(first, COUNTED, command=COUNTER, background=True)  # goes on while there is no daemon

    # --- what has to hold

    def check_session(self, session, labels):
        answer = self.ask("GET", f"/sessions/{session}")
        if not answer:
            if "or ended" not in labels:
                self.problem(f"session {session} is lost")
            return
        record = answer.json
        if record["state"] != "open" and "or ended" not in labels and not (record["state"] == "paused" and self.may_fail()):
            self.problem(f"session {session} is {record['state']}: {record.get('end_reason')}")
        if record["state"] == "paused" and not self.ask("POST", f"/sessions/{session}/resume", {}):
            self.problem(f"session {session} cannot be resumed")
        if record["labels"] not in labels:
            self.problem(f"session {session} has labels {record['labels']} instead of {labels}")
        if record["state"] == "open" and session not in self.replaced and record["generation"] > 1:
            self.problem(f"session {session} has lost its sandbox: {answer.body[:800]!r}")

    def check_execution(self, session, execution, expected):
        path = f"/sessions/{session}/executions/{execution}"
        answer = self.ask("GET", path + "?wait=10")
        if not answer:
            self.problem(f"execution {execution} is lost")
            return
        result = answer.json
        output = self.ask("GET", path + "/output?stream=stdout")
        told = result.get("error") or result.get("output_error") or (result["reason"] if result["state"] != "exited" else None)
        gap = output is not None and output.headers.get("x-sandglass-gap")
        if output is not None and output.body == expected and (result["state"], result["exit_code"]) == ("exited", 0):
            return
        if not (told or gap) or not self.may_fail() or self.action.startswith("kill"):
            self.problem(f"execution {execution}: {len(output.body) if output else None} bytes of {len(expected)}: "
                         f"{json.dumps({**result, 'stdout': None, 'request': None})[:900]}")

    def check_promises(self):
        for session, when in self.deleted.items():
            answer = self.daemon.api("GET", f"/sessions/{session}", timeout=DEADLINE_S)
            if answer.status == 200 and answer.json["state"] != "ended":
                self.problem(f"deleted session {session} is {answer.json['state']}")
        for session, labels in self.sessions.items():
            self.check_session(session, labels)
        for session, execution, expected in self.ran:
            if session in self.sessions and "or ended" not in self.sessions[session]:
                self.check_execution(session, execution, expected)
        for session, path, content in self.files:
            if session in self.sessions and "or ended" not in self.sessions[session]:
                self.check_kept_file(session, path, content)

    def check_kept_file(self, session, path, content):
        answer = self.ask("GET", f"/sessions/{session}/files?path={path}")
        if not answer or answer.body != content:
            self.problem(f"{path} of {session} is {answer.body[:40] if answer else 'lost'}")

    def check_nothing_left(self):
        answer = self.ask("DELETE", "/sessions")
        if answer and answer.json["failed"]:
            self.problem(f"DELETE /sessions: {answer.body[:600]!r}")
        self.wait(lambda: not self.spool_left(), "output is left after retention", self.spool_left)
        self.daemon.process.terminate()
        self.wait_exit("the healthy daemon")
        self.wait(lambda: not any(conftest.leftovers(self.directory).values()), "left behind",
                  lambda: {k: v for k, v in conftest.leftovers(self.directory).items() if v})
        for name in ("sandboxes", "ahead", "trash"):
            entries = list((self.daemon.state / name).iterdir()) if (self.daemon.state / name).exists() else []
            if entries:
                self.problem(f"left in {name}: {[str(e) for e in entries]}")

    def spool_left(self):
        return [str(path) for name in ("spool", "kept") for path in (self.daemon.state / name).rglob("*") if path.is_file()]

    def wait(self, condition, what, detail, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.problem(f"{what}: {detail()}")
                return
            time.sleep(0.02)

    # --- daemons

    def wait_exit(self, who):
        try:
            return self.daemon.process.wait(DEADLINE_S)
        except Exception:
            self.problem(f"{who} does not stop")
            self.daemon.process.kill()
            return self.daemon.process.wait()

    def check_exit(self, code, log):
        """Killed by us, out of memory, or by itself with a message."""
        if code == -signal.SIGKILL and self.action in ("kill-before", "kill-after"):
            return
        if code in (-signal.SIGABRT, -signal.SIGSEGV) and self.action == "ENOMEM":
            foreign = any(name in self.module for name in ("libcrypto", "libssl", "ld-linux"))
            # The C library's lookup of users uses what it could not allocate; the daemon asks for its user before it listens.
            foreign = foreign or ("libc.so" in self.module and '"listening"' not in log)
            if not foreign and (code == -signal.SIGSEGV or ("out of memory" not in log and "Assertion" not in log)):
                self.problem(f"the daemon ended with {code}, without saying that there is no memory")
            return
        if code == 127 and self.action == "ENOMEM" and "cannot allocate memory" in log:
            return  # said by the dynamic linker
        if code < 0 or code > 125:
            self.problem(f"the daemon ended with {code}")
        elif code != 0 and (not self.may_fail() or not log.strip()):
            self.problem(f"the daemon exited with {code}")

    def run_faulty(self):
        self.daemon.environment = self.injected
        self.daemon.spawn()
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not self.is_serving():
                if self.daemon.process.poll() is not None:
                    raise Dead()
                if time.monotonic() > deadline:
                    self.problem("the daemon does not serve")
                    raise Dead()
                time.sleep(0.01)
            self.work()
        except Dead:
            pass
        if self.daemon.process.poll() is None:
            self.daemon.process.terminate()
        self.check_exit(self.wait_exit("the daemon"), self.daemon.log())

    def is_serving(self):
        try:
            return self.daemon.request("GET", "/readyz", timeout=DEADLINE_S).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def run_healthy(self):
        self.daemon.environment = {}
        self.daemon.settings["shutdown"]["policy"] = "destroy"
        before, self.action = self.action, None  # nothing fails now
        self.daemon.spawn()
        deadline = time.monotonic() + DEADLINE_S
        while not self.is_serving():
            if self.daemon.process.poll() is not None or time.monotonic() > deadline:
                self.problem(f"the healthy daemon does not come up: {self.daemon.process.poll()}")
                return
            time.sleep(0.01)
        self.action = before
        try:
            self.check_promises()
            self.check_nothing_left()
        except Dead:
            self.problem("the healthy daemon is gone")

    def execute(self):
        """Returns whether the fault was reached; `problems` says what is wrong."""
        try:
            self.run_faulty()
            self.run_healthy()
            return bool(self.header()[1])
        except BaseException as problem:  # an assertion of the harness is a finding too
            self.problem(f"{type(problem).__name__}: {problem}")
            return True
        finally:
            if self.daemon.process.poll() is None:
                self.daemon.process.kill()
                self.daemon.process.wait()
            self.log = self.daemon.log()
            self.sweep()

    def header(self):
        return HEADER.unpack(self.trace_path.read_bytes()[:HEADER.size])

    def sweep(self):
        """A case that failed may leave something; the next one must not find it."""
        for pid in conftest.our_processes(self.directory) if self.problems else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if os.environ.get("SANDGLASS_KEEP") is None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def entries(self):
        """What was called, in order, of a run without a fault: call, kind, module, offset."""
        with open(self.trace_path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as trace:
            count = HEADER.unpack(trace[:HEADER.size])[0]
            for (word,) in struct.iter_unpack("Q", trace[HEADER.size:HEADER.size + 8 * count]):
                yield word >> 56, word >> 48 & 0xFF, word >> 36 & 0xFFF, word & 0xFFFFFFFFF
