# SPDX-License-Identifier: Apache-2.0
"""An agent without a model plays twenty sessions: crashes, teardowns, replacements, approvals denied, granted and expired, budgets
that run out, and a daemon that is killed. Each step is checked against what the agent was told before, and at the end the
money has to add up to the micro-dollar.

SANDGLASS_SEED repeats an earlier play."""
import datetime
import decimal
import json
import os
import random
import signal
import time

from conftest import wait_for
from test_flavors import decide, events_of, money, session_of

SEED = int(os.environ.get("SANDGLASS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
SESSIONS, ROUNDS = 20, 5
BASE = "cpu-basic"
PRICES = {BASE: 0, "roomy": 0, "fast": 3600, "faster": 7200}  # a dollar or two each second
FLAVORS = [{"name": name, "price_per_hour": price, "needs_approval": price > 0} for name, price in PRICES.items()]
OWNERS = ("ann", "bob")
SLACK = decimal.Decimal("0.005")  # events have milliseconds


def seconds(text):
    return decimal.Decimal(str(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()))


class Agent:
    """One session, and what it has to be like after all that it was told."""

    def __init__(self, daemon, number):
        self.daemon, self.number = daemon, number
        self.random = random.Random(SEED * 1000 + number)
        self.headers = {"X-Sandglass-On-Behalf-Of": OWNERS[number % 2]}
        self.transcript = []
        self.id = self.api("POST", "/sessions", {"labels": {"number": str(number)}}, 201)["id"]
        self.flavor, self.choice, self.active = BASE, "automatic", True
        self.granted = set()
        self.pending = None        # an approval that nobody will decide
        self.seen = 0              # the generation of the last run
        self.last_run = {}         # generation: when it was last seen at work
        self.spent = decimal.Decimal(0)

    def api(self, method, path, body=None, expect=None):
        answer = self.daemon.api(method, path, body, headers=self.headers)
        self.transcript.append((method, path, body, answer.status, answer.body[:600]))
        if expect is not None:
            assert answer.status == expect, self.tell()
        return json.loads(answer.body, parse_float=decimal.Decimal)

    def tell(self):
        lines = "\n".join(map(str, self.transcript[-12:]))
        return f"seed {SEED}, session {self.number} {self.id}: expected {self.flavor} ({self.choice}, active {self.active})\n{lines}"

    def session(self):
        return self.api("GET", f"/sessions/{self.id}", expect=200)

    # --- what it does ---

    def run(self):
        """Files are there if and only if the sandbox is the one of the last run, and a reset is told once."""
        result = self.api("POST", f"/sessions/{self.id}/executions",
                          {"command": "test -e marker && echo kept; touch marker"}, 201)
        same = result["generation"] == self.seen
        assert result["stdout"] == ("kept\n" if same else ""), self.tell()
        assert result["generation"] >= self.seen, self.tell()
        assert result["files_were_reset"] == (not same and result["generation"] > 1), self.tell()
        self.seen = result["generation"]
        self.last_run[self.seen] = seconds(result["ended_at"])
        self.active = True

    def crash(self):
        session = self.session()
        if session["sandbox"]["state"] != "ready":
            return
        os.kill(int(session["sandbox"]["pid"]), signal.SIGKILL)
        wait_for(lambda: self.session()["sandbox"]["id"] != session["sandbox"]["id"], "the crash is noticed: " + self.tell())
        self.active = False
        if self.choice == "once":
            self.flavor, self.choice = BASE, "automatic"

    def teardown(self):
        self.api("POST", f"/sessions/{self.id}/sandbox/teardown", {}, 202)
        self.flavor, self.choice, self.active = BASE, "automatic", False

    def ask(self, flavor):
        """The approval if one is needed; otherwise what was said is what is true."""
        answer = self.api("POST", f"/sessions/{self.id}/sandbox", {"flavor": flavor})
        status = self.transcript[-1][3]
        if self.active and flavor == self.flavor:
            assert status == 200 and "Nothing changes" in answer["message"], self.tell()
        elif self.active and self.choice != "automatic":
            assert status == 409 and "cannot be changed" in answer["error"]["message"], self.tell()
        elif PRICES[flavor] and flavor not in self.granted:
            assert status == 202 and answer["kind"] == "approval" and answer["estimated_usd"] > 0, self.tell()
            return answer
        else:
            assert status == 202 and answer["flavor"] == flavor, self.tell()
            self.made(flavor, "session" if PRICES[flavor] else "automatic" if flavor == BASE else "free")
        return None

    def made(self, flavor, choice):
        self.flavor, self.choice, self.active = flavor, choice, True
        self.pending = None

    def ask_and_be(self, decision, flavor, **more):
        approval = self.ask(flavor)
        if not approval:
            return
        answer = decide(self.daemon, approval["id"], decision, reason="the script", **more)
        if decision == "deny":
            assert answer["state"] == "denied" and "Nothing was changed" in answer["result"], self.tell()
            self.pending = None
            return
        assert answer["state"] == "approved", self.tell()
        if more.get("session"):
            self.granted.add(flavor)
        self.made(flavor, "session" if more.get("session") else "once")

    def ask_and_forget(self):
        approval = self.ask("faster")
        if approval:
            self.pending = approval["id"]

    def step(self):
        action = self.random.choice([
            self.run, self.run, self.run, self.crash, self.teardown,
            lambda: self.ask("roomy"), lambda: self.ask(BASE),
            lambda: self.ask_and_be("deny", "fast"), lambda: self.ask_and_be("approve", "fast"),
            lambda: self.ask_and_be("approve", "faster", session=True), self.ask_and_forget,
        ])
        action()
        self.check()

    # --- what has to be true ---

    def check(self):
        """What is shown is what was told, and money never comes back."""
        session = self.session()
        assert (session["flavor"], session["choice"]) == (self.flavor, self.choice), self.tell()
        budget = money(self.daemon, self.id, self.headers)
        assert budget["spent_usd"] >= self.spent, self.tell()
        assert budget["owner"]["spent_usd"] >= budget["spent_usd"], self.tell()
        assert set(budget["approved_flavors"]) == self.granted, self.tell()
        self.spent = budget["spent_usd"]

    def end(self):
        """Torn down, everything is paid: what each sandbox cost follows from when it lived."""
        wait_for(lambda: self.session()["sandbox"]["state"] == "none", "it is gone: " + self.tell())
        if self.pending:
            answer = self.api("GET", f"/approvals/{self.pending}?wait=20", expect=200)
            assert answer["state"] == "expired" and "nothing was changed" in answer["result"], self.tell()
        budget = money(self.daemon, self.id, self.headers)
        lives = self.lives()
        charges = [data for _, data in events_of(self.daemon, self.id, "budget.charged", headers=self.headers)]
        assert sum(charge["charged_usd"] for charge in charges) == budget["spent_usd"], self.tell()
        assert budget["reserved_usd"] == 0, self.tell()
        for charge in charges:
            self.check_charge(charge, lives[charge["sandbox"]])
        paid = {charge["sandbox"] for charge in charges}
        for sandbox, life in lives.items():  # one that goes between its record and its first answer is paid, and was never ready
            assert sandbox not in paid or PRICES[life["flavor"]] > 0, (sandbox, life, self.tell())
            assert sandbox in paid or PRICES[life["flavor"]] == 0 or "ready" not in life, (sandbox, life, self.tell())
        return budget["spent_usd"]

    def lives(self):
        """When each sandbox was begun, ready and gone, from the events."""
        found = {}
        for kind in ("creating", "ready", "destroyed"):
            for event, data, when in events_of(self.daemon, self.id, "sandbox." + kind, headers=self.headers, times=True):
                life = found.setdefault(data["sandbox"], {"flavor": data["flavor"], "generation": data["generation"]})
                life[kind] = seconds(when)
        return found

    def check_charge(self, charge, life):
        a_second = decimal.Decimal(PRICES[charge["flavor"]]) / 3600
        most = (life["destroyed"] - life["creating"] + SLACK) * a_second
        begin = life.get("ready", life["destroyed"])
        least = (self.last_run.get(life["generation"], begin) - begin - SLACK) * a_second
        assert charge["flavor"] == life["flavor"], self.tell()
        assert least <= charge["charged_usd"] <= most, (charge, life, self.tell())


def play_out_of_budget(daemon, number):
    """What fits into the cap needs nobody; when it is used up the sandbox goes, and the session goes on."""
    agent = Agent(daemon, number)
    agent.api("PATCH", f"/sessions/{agent.id}/budget", {"auto_approve": True, "cap_usd": 3}, 200)
    agent.run()
    assert agent.api("POST", f"/sessions/{agent.id}/sandbox", {"flavor": "faster"}, 202)["kind"] == "approval"
    assert "fast" == agent.api("POST", f"/sessions/{agent.id}/sandbox", {"flavor": "fast"}, 202)["flavor"]
    agent.run()
    return agent


def finish_out_of_budget(agent, down_seconds):
    """While no daemon runs nobody can end a sandbox at its cap: that time is charged."""
    wait_for(lambda: agent.session()["flavor"] == BASE, "the budget is used up: " + agent.tell())
    agent.flavor, agent.choice = BASE, "automatic"
    agent.run()
    agent.check()
    assert agent.spent <= 3 + decimal.Decimal(down_seconds), (down_seconds, agent.tell())
    reasons = [data["reason"] for _, data in events_of(agent.daemon, agent.id, "sandbox.destroyed", headers=agent.headers)]
    assert reasons == ["replaced", "budget"], agent.tell()


def test_twenty_sessions_tell_the_truth_and_the_money_adds_up(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 2}, "flavors": FLAVORS, "approvals": {"timeout": 10},
                                                     "budget": {"window": 2}})
    poor = [play_out_of_budget(daemon, SESSIONS - 1 - number) for number in range(2)]
    agents = [Agent(daemon, number) for number in range(SESSIONS - len(poor))]
    down_seconds = 0
    for turn in range(ROUNDS):
        for agent in agents:
            if agent.pending:
                agent.run()  # until its approval has expired nothing else may happen
            else:
                agent.step()
        if turn % 2 == 1:
            down_since = time.monotonic()
            daemon.kill()
            daemon.start()
            down_seconds += time.monotonic() - down_since
            for agent in agents:
                agent.check()
    for agent in poor:
        finish_out_of_budget(agent, down_seconds)
    spent = {owner: decimal.Decimal(0) for owner in OWNERS}
    for agent in agents + poor:
        agent.teardown()
    for agent in agents + poor:
        spent[agent.headers["X-Sandglass-On-Behalf-Of"]] += agent.end()
    daemon.kill()
    daemon.start()
    for owner, amount in spent.items():
        answer = daemon.api("GET", "/budget", headers={"X-Sandglass-On-Behalf-Of": owner})
        assert json.loads(answer.body, parse_float=decimal.Decimal)["spent_usd"] == amount, f"seed {SEED}"
    assert sum(spent.values()) > 0
    for agent in agents + poor:
        final = daemon.api("DELETE", f"/sessions/{agent.id}", expect=200, headers=agent.headers)
        assert json.loads(final.body, parse_float=decimal.Decimal)["spent_usd"] >= agent.spent
