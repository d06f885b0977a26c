# SPDX-License-Identifier: Apache-2.0
"""Clients of a cluster: all kinds of requests through random nodes, each written into the history with its times and its outcome.

A session belongs to one client, which is the only one that changes it, so that the checker knows what a read may find. What several
clients share is what the cluster must keep apart: keys, Idempotency-Keys, caps and budgets of owners.
"""
import http.client
import itertools
import json
import random
import threading
import time

from nodes import UnixConnection
from rig import OWNERS, now

MOST_SESSIONS = 3  # of one client
SHARED_KEYS = 3  # of each owner, that all its clients fight for
FILE_BYTES = 40000  # more than fits into one packet
EXEC = 'read up rest </proc/uptime; echo {token} $SANDGLASS_SESSION_ID $NODE $up >>/witness/ran; echo {token}'


class Session:
    def __init__(self, name, token):
        self.name, self.token = name, token
        self.value = 0


class Client(threading.Thread):
    numbers = itertools.count(1)

    def __init__(self, rig, number, seed, stop):
        super().__init__(daemon=True)
        self.rig, self.stop, self.number = rig, stop, number
        self.owner = OWNERS[number % len(OWNERS)]
        self.chance = random.Random(f"{seed}-{number}")
        self.sessions = {}
        self.problems = []
        self.entry = None  # of the last request

    # Requests.

    def ask(self, kind, method, path, body=None, key=None, headers=None, fields=None, timeout=20, read=None):
        """The answer, or None when its outcome is not known; either way it is in the history. `read` adds what an answer says."""
        node = self.rig.any_node(self.chance)
        entry = {"kind": kind, "entry": node.name, "owner": self.owner, "client": self.number, "invoke": now(), **(fields or {})}
        answer = None
        try:
            answer = node.api(method, path, body, key=key or self.rig.keys[self.owner], headers=headers, timeout=timeout)
            entry.update(status=answer.status, request=answer.headers.get("x-request-id"))
            entry["outcome"] = "ok" if answer.status < 300 else "failed" if answer.status < 500 else "unknown"
            entry.update(self.error_of(answer) if answer.status >= 300 else read(answer) if read else {})
        except (OSError, http.client.HTTPException, ValueError) as problem:
            entry.update(outcome="unknown", problem=repr(problem))
            answer = None
        entry["complete"] = now()
        self.entry = self.rig.recorder.add("op", **entry)
        if answer is not None and answer.status >= 500:
            self.look_at_refusal(kind, answer, entry)
        if entry["outcome"] == "unknown":
            time.sleep(0.05)  # a node that is away is not asked all the time
        return None if entry["outcome"] == "unknown" else answer

    def error_of(self, answer):
        error = answer.json["error"]
        return {"code": error["code"], "message": error["message"][:200], "retryable": error.get("retryable")}

    def look_at_refusal(self, kind, answer, entry):
        """A refusal that passes says so, and when to come again."""
        if answer.status == 503 and entry.get("retryable") and "retry-after" not in answer.headers:
            self.problems.append(f"{kind}: {answer.status} {entry['code']} is retryable and has no Retry-After")
        if answer.status == 500:
            self.problems.append(f"{kind}: 500 {entry.get('code')}: {entry.get('message')}")

    @staticmethod
    def read_session(answer):
        record = answer.json
        sandbox = record.get("sandbox") or {}
        held = sandbox.get("id") if sandbox.get("state") in ("ready", "frozen") else None
        fields = {"session": record["id"], "state": record["state"], "generation": record["generation"], "sandbox": held, "reason": record["end_reason"],
                  "ended_at": record["ended_at"], "flavor": record["flavor"], "value": int(record["labels"].get("value", 0)), "node": record.get("node")}
        if held is None or held and sandbox["generation"] != record["generation"]:
            fields["sandbox"] = None  # of a generation that is being made
        return fields

    def token(self, kind):
        return f"{kind}-{self.number}-{next(self.numbers)}"

    # What a client does.

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
        except Exception as problem:  # reported by the test, which looks at all clients
            self.problems.append(f"client {self.number}: {problem!r}")

    def step(self):
        if not self.sessions:
            return self.create()
        actions = [self.create] * (len(self.sessions) < MOST_SESSIONS) + [
            self.get, self.get, self.list, self.execute, self.execute, self.execute_with_key, self.execute_with_input, self.patch, self.patch, self.extend,
            self.write, self.read, self.pause, self.follow, self.listen, self.tear_down, self.run_once, self.fight_for_key, self.repeat_create, self.spend,
            self.delete]
        if self.chance.random() < 0.02:
            return self.delete_all()
        return self.chance.choice(actions)()

    def pick(self):
        return self.chance.choice(list(self.sessions.values()))

    def create(self):
        token = self.token("create")
        body = {"labels": {"token": token, "client": str(self.number)}}
        fields = {"token": token}
        headers = {}
        way = self.chance.choice(("plain", "key", "idempotency"))
        if way == "key":
            body["key"] = fields["key"] = token
        elif way == "idempotency":
            headers["Idempotency-Key"] = fields["idempotency_key"] = token
        answer = self.ask("create", "POST", "/sessions", body, headers=headers, fields=fields, read=self.read_session)
        while answer is None and way != "plain" and not self.stop.is_set():  # whoever can ask again does so
            answer = self.ask("create", "POST", "/sessions", body, headers=headers, fields=fields, read=self.read_session)
        if answer is not None and answer.status in (200, 201):
            self.sessions[answer.json["id"]] = Session(answer.json["id"], token)

    def repeat_create(self):
        """The same create twice at once, through two nodes."""
        token = self.token("twice")
        body = {"labels": {"token": token, "client": str(self.number)}}
        answers = []

        def once():
            answers.append(self.ask("create", "POST", "/sessions", body, headers={"Idempotency-Key": token},
                                    fields={"token": token, "idempotency_key": token}, read=self.read_session))
        other = threading.Thread(target=once)
        other.start()
        once()
        other.join()
        for answer in answers:
            if answer is not None and answer.status in (200, 201):
                self.sessions[answer.json["id"]] = Session(answer.json["id"], token)

    def fight_for_key(self):
        """All clients of an owner want a few sessions; whoever has one uses it, and now and then ends it."""
        name = f"shared-{self.chance.randrange(SHARED_KEYS)}"
        answer = self.ask("create", "POST", "/sessions", {"key": name}, fields={"key": name}, read=self.read_session)
        if answer is None or answer.status not in (200, 201):
            return
        session = answer.json["id"]
        self.ask("get", "GET", f"/sessions/key:{name}", fields={}, read=self.read_session)
        if self.chance.random() < 0.3:
            self.ask("delete", "DELETE", f"/sessions/{session}", fields={"session": session}, read=self.read_session, timeout=40)

    def note_end(self, session, answer):
        """A session that has ended, or is not there, is not used any more; the history has what was said about it."""
        if answer is not None and (answer.status in (404, 410) or answer.status == 200 and answer.json.get("state") == "ended"):
            self.sessions.pop(session.name, None)

    def change(self, kind, method, path, body=None, read=None, **options):
        session = self.pick()
        fields = {"session": session.name, **options.pop("fields", {})}
        answer = self.ask(kind, method, f"/sessions/{session.name}{path}", body, fields=fields, read=read, **options)
        self.note_end(session, answer)
        return session, answer

    def get(self):
        self.change("get", "GET", "", read=self.read_session)

    def list(self):
        """Lists change nothing, and what is missing in one is seen at the end: it may have been made or ended meanwhile."""
        answer = self.ask("page", "GET", f"/sessions?label=client={self.number}&limit=100")
        for record in answer.json["sessions"] if answer is not None and answer.status == 200 else []:
            if record["owner"] != self.owner:
                self.problems.append(f"the list of {self.owner} has {record['id']} of {record['owner']}")

    def patch(self):
        session = self.pick()
        session.value += 1
        labels = {"token": session.token, "client": str(self.number), "value": str(session.value)}
        answer = self.ask("patch", "PATCH", f"/sessions/{session.name}", {"labels": labels}, fields={"session": session.name, "value": session.value},
                          read=lambda answer: {**self.read_session(answer), "value": session.value})
        self.note_end(session, answer)

    def extend(self):
        self.change("extend", "POST", "/keepalive", {"timeout": 86400}, read=self.read_session)

    def pause(self):
        session, answer = self.change("pause", "POST", "/pause", read=self.read_session)
        if answer is not None and answer.status == 200:
            self.note_end(session, self.ask("resume", "POST", f"/sessions/{session.name}/resume", fields={"session": session.name}, read=self.read_session))

    @staticmethod
    def read_execution(answer):
        record = answer.json
        return {"execution": record["id"], "exit": record["state"], "generation": record["generation"] or None, "sandbox": record["sandbox_id"] or None,
                "exit_reason": record["reason"]}

    def check_output(self, token, answer, expected):
        if answer is not None and answer.status in (200, 201) and answer.json["state"] == "exited" and answer.json.get("stdout") != expected:
            self.problems.append(f"{token} printed {answer.json.get('stdout')!r}, and {expected!r} was expected ({answer.json['exit_code']}, {answer.json.get('stderr')!r})")

    def execute(self):
        token = self.token("exec")
        _, answer = self.change("exec", "POST", "/executions", {"command": EXEC.format(token=token)}, read=self.read_execution,
                                fields={"token": token, "is_only": True})
        self.check_output(token, answer, token + "\n")

    def execute_with_key(self):
        """Asked again with the same key until there is an answer: it runs once however often that takes."""
        token = self.token("keyed")
        session = self.pick()
        answer = None
        for _ in range(20):
            answer = self.ask("exec", "POST", f"/sessions/{session.name}/executions", {"command": EXEC.format(token=token), "key": token},
                              fields={"session": session.name, "token": token}, read=self.read_execution)
            if answer is not None or self.stop.is_set():
                break
        self.note_end(session, answer)

    def execute_with_input(self):
        """A program in the background that gets its input through another node, and whose output comes from a third."""
        token = self.token("input")
        session, answer = self.change("exec", "POST", "/executions", {"command": EXEC.format(token=token) + "; cat", "stdin": True, "background": True},
                                      fields={"token": token, "is_only": True}, read=lambda answer: {**self.read_execution(answer), "exit": None})
        if answer is None or answer.status != 201:
            return
        path = f"/sessions/{session.name}/executions/{answer.json['id']}"
        words = self.ask("stdin", "POST", f"{path}/stdin", b"words\n", headers={"Content-Type": "application/octet-stream"}, fields={"session": session.name})
        end = self.ask("stdin", "POST", f"{path}/stdin?eof=1", b"", headers={"Content-Type": "application/octet-stream"}, fields={"session": session.name})
        if words is None or end is None or words.status >= 300 or end.status >= 300:
            return self.ask("cancel", "DELETE", path, fields={"session": session.name})
        done = self.ask("wait", "GET", f"{path}?wait=5", fields={"session": session.name})
        output = self.ask("output", "GET", f"{path}/output?stream=stdout", fields={"session": session.name})
        if done is not None and done.status == 200 and done.json["state"] == "exited" and output is not None and output.status == 200:
            if output.body != f"{token}\nwords\n".encode():
                self.problems.append(f"{token} printed {output.body!r} ({output.headers})")
        return None

    def generation_of(self, session):
        answer = self.ask("get", "GET", f"/sessions/{session.name}", fields={"session": session.name}, read=self.read_session)
        return answer.json["generation"] if answer is not None and answer.status == 200 else None

    def around(self, session, act):
        """Does something with files, which does not say of which generation they are: known where it is the same before and afterwards."""
        before = self.generation_of(session)
        entry = act()
        after = self.generation_of(session)
        entry["generation"] = before if before == after else None

    def write(self):
        session = self.pick()
        word = self.token("file")

        def put():
            body = (word + "\n").encode() * (FILE_BYTES // (len(word) + 1))
            self.ask("write", "PUT", f"/sessions/{session.name}/files?path=data", body, headers={"Content-Type": "application/octet-stream"},
                     fields={"session": session.name, "value": word})
            return self.entry
        self.around(session, put)

    def read(self):
        session = self.pick()

        def read_file(answer):
            lines = set(answer.body.decode(errors="replace").split())
            return {"value": lines.pop() if len(lines) == 1 else f"{len(lines)} different lines"}

        def get():
            self.ask("read", "GET", f"/sessions/{session.name}/files?path=data", fields={"session": session.name, "value": None}, read=read_file)
            entry = self.entry
            if entry.get("code") == "file_not_found":
                entry["outcome"] = "ok"  # an answer like any other
            return entry
        self.around(session, get)

    def follow(self):
        """The events of a session so far, through any node."""
        session = self.pick()
        answer = self.ask("events", "GET", f"/sessions/{session.name}/events?follow=0", fields={"session": session.name})
        if answer is not None and answer.status == 200:
            record_events(self.rig.recorder, session.name, answer.body)

    def listen(self):
        """The live events of an owner, through any node, for a moment: numbers of a session and their types are the same everywhere."""
        node = self.rig.any_node(self.chance)
        connection = UnixConnection(node.socket, 0.3)
        try:
            connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {self.rig.keys[self.owner]}", "Accept": "text/event-stream"})
            response = connection.getresponse()
            deadline = now() + 0.3
            while response.status == 200 and now() < deadline and (line := response.readline()):
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if event.get("session_id"):
                        record_events(self.rig.recorder, event["session_id"], line)
        except (OSError, http.client.HTTPException, ValueError):
            pass  # nothing came, or the node went away
        finally:
            connection.close()

    def tear_down(self):
        """The sandbox goes, the session stays: the next use is of another generation."""
        self.change("teardown", "POST", "/sandbox/teardown")

    def run_once(self):
        """A session that is made for one program and goes with it."""
        token = self.token("once")
        answer = self.ask("exec", "POST", "/execute", {"language": "bash", "code": EXEC.format(token=token), "ephemeral": True},
                          fields={"token": token, "is_only": True}, read=lambda answer: {"exit": answer.json["state"]})
        if answer is not None and answer.status == 200 and answer.json["state"] == "exited" and answer.json["stdout"] != token + "\n":
            self.problems.append(f"{token} printed {answer.json['stdout']!r}")

    def spend(self):
        """A sandbox that costs something; its session is ended soon, so that others may have their turn."""
        answer = self.ask("create", "POST", "/sessions", {"labels": {"client": str(self.number)}}, read=self.read_session)
        if answer is None or answer.status != 201:
            return
        session = answer.json["id"]
        fields = {"session": session}
        self.ask("allow", "PATCH", f"/sessions/{session}/budget", {"auto_approve": True}, key=self.rig.keys["root"], fields=fields)
        self.ask("buy", "POST", f"/sessions/{session}/sandbox", {"flavor": "paid"}, fields=fields)
        for _ in range(4):
            self.ask("get", "GET", f"/sessions/{session}", fields=fields, read=self.read_session)
        money = self.ask("money", "GET", "/budget")
        if money is not None and money.status == 200:
            record_money(self.rig.recorder, money.json)
        self.ask("delete", "DELETE", f"/sessions/{session}", fields=fields, read=self.read_session, timeout=40)

    def delete(self):
        session = self.pick()
        self.sessions.pop(session.name)
        for _ in range(self.chance.randrange(1, 4)):  # again is the same
            self.ask("delete", "DELETE", f"/sessions/{session.name}", fields={"session": session.name}, read=self.read_session, timeout=40)

    def delete_all(self):
        begin = now()
        mine = sorted(self.sessions)
        answer = self.ask("delete_all", "DELETE", f"/sessions?label=client={self.number}", timeout=60)
        self.sessions.clear()
        destroyed = answer.json["destroyed"] if answer is not None and answer.status == 200 else []
        for session in {*mine, *destroyed}:
            self.rig.recorder.add("op", kind="delete", entry="", owner=self.owner, invoke=begin, complete=now(), session=session,
                                  outcome="ok" if session in destroyed else "unknown")


def record_events(recorder, session, body):
    for line in body.decode(errors="replace").splitlines():
        if line.startswith("data: "):
            event = json.loads(line[6:])
            if event.get("session_id") == session:
                recorder.add("event", session=session, number=event["session_sequence"], type=event["type"], data=event["data"], time=event["time"])


def record_money(recorder, money):
    recorder.add("money", owner=money["owner"], cap=money["cap_usd"], spent=money["spent_usd"], reserved=money["reserved_usd"], at=now())
