# SPDX-License-Identifier: Apache-2.0
"""Checks the history of a cluster: what was asked, answered and seen, against what the cluster promises.

A history is a list of entries, each a dictionary with `what`; times are seconds of the clock that counts since boot.

| what    | fields                                                                                                                  |
| ---     | ---                                                                                                                     |
| `op`    | a request: `kind`, `entry` (node that was asked), `owner`, `invoke`, `complete`, `outcome` (`ok`, `failed`, `unknown`), and what it sent and got: `session token key idempotency_key state generation sandbox node reason ended_at value code` |
| `ran`   | a program has begun, as it said itself on a way that does not lead through the cluster: `token session node at`            |
| `home`  | the home of a session from `begin` to `end`, as the store had it whenever that was looked at: `session node`             |
| `event` | of a session's list of events: `session number type`                                                                    |
| `final` | a session after the last fault: `session state reason owner key token value is_for_one_call`; `state` is `missing` where it is not found  |
| `money` | what an owner had spent and reserved: `owner cap spent reserved`                                                         |
| `loss`  | the store has lost writes that it had acknowledged, and a daemon has said so: `at`, `since` (the last time it was known whole) |
| `left`  | something that was still there at the end: `node kind name`                                                               |

`outcome` is `failed` only where the answer says that nothing was done (4xx); an answer with 5xx, and none, is `unknown`: it may have been
done. A rule is a function that yields one sentence for each violation. What the store itself has lost, and said so, is no violation of
the rules about lost writes, keys and caps; all other rules hold even then.
"""
import bisect
import collections

SLACK_S = 1.0  # between the moment when a daemon decides and the moment when that can be seen elsewhere
WRITES = ("patch", "extend", "pause", "resume", "exec", "write")


class History:
    def __init__(self, entries, cap=None, paid_cap=None, is_whole=True):
        self.is_whole = is_whole  # each session was looked at after the last fault
        self.cap = cap  # sandboxes that an owner may have at a time
        self.paid_cap = paid_cap  # and of those that cost something, by the owner's budget
        kinds = collections.defaultdict(list)
        for entry in entries:
            kinds[entry["what"]].append(entry)
        self.ops = sorted(kinds["op"], key=lambda op: op["invoke"])
        self.ran, self.events, self.money, self.left, self.losses = (kinds[name] for name in ("ran", "event", "money", "left", "loss"))
        self.final = {entry["session"]: entry for entry in kinds["final"]}
        self.homes = collections.defaultdict(list)
        for entry in sorted(kinds["home"], key=lambda home: home["begin"]):
            self.homes[entry["session"]].append(entry)
        self.by_session = collections.defaultdict(list)
        for op in self.ops:
            if op.get("session"):
                self.by_session[op["session"]].append(op)

    def may_be_lost(self, when):
        """Whether what was acknowledged then may be gone because the store said that it lost writes."""
        return any(loss["since"] <= when <= loss["at"] for loss in self.losses)

    def answers(self, *kinds):
        return [op for op in self.ops if op["outcome"] == "ok" and op["kind"] in kinds]


def known_open(history, session):
    """From when until when a session was open for certain: between the first answer that says so and the last question that got one."""
    seen = [op for op in history.by_session[session] if op["outcome"] == "ok" and op.get("state") in ("open", "paused")]
    if not seen:
        return None
    begin, end = min(op["complete"] for op in seen), max(op["invoke"] for op in seen)
    return (begin, end) if begin < end else None


def overlaps(first, second):
    return first and second and first[0] < second[1] and second[0] < first[1]


def one_session_for_each_key(history):
    sessions = collections.defaultdict(set)
    for op in history.answers("create"):
        if op.get("key"):
            sessions[op["owner"], op["key"]].add(op["session"])
    for (owner, key), found in sessions.items():
        found = sorted(found)
        for at, first in enumerate(found):
            for second in found[at + 1:]:
                spans = known_open(history, first), known_open(history, second)
                if overlaps(*spans) and not history.may_be_lost(min(span[0] for span in spans)):
                    yield f"key {key} of {owner} had two sessions at once: {first} {spans[0]}, {second} {spans[1]}"


def each_create_once(history):
    """A create with a key that had no answer may be done later, when the session that a second try has made is gone: a session for each try."""
    made = collections.defaultdict(set)
    tried = collections.Counter(op.get("token") for op in history.ops if op["kind"] == "create")
    by_key = {op.get("token") for op in history.ops if op["kind"] == "create" and op.get("key")}
    for entry in [*history.answers("create"), *history.final.values()]:
        if entry.get("token") and entry.get("state") != "missing":
            made[entry["token"]].add(entry["session"])
    for token, sessions in made.items():
        if len(sessions) > (tried[token] if token in by_key else 1):
            yield f"one create made several sessions: {token}: {sorted(sessions)}"
    again = collections.defaultdict(set)
    for op in history.answers("create"):
        if op.get("idempotency_key") and not history.may_be_lost(op["complete"]):
            again[op["owner"], op["idempotency_key"]].add(op["session"])
    for (owner, name), sessions in again.items():
        if len(sessions) > 1:
            yield f"Idempotency-Key {name} of {owner} gave several sessions: {sorted(sessions)}"
    refused = {op["token"]: op for op in history.ops if op["kind"] == "create" and op["outcome"] == "failed" and op.get("token")}
    for entry in history.final.values():
        if entry.get("token") in refused and tried[entry["token"]] == 1:
            yield f"a create was refused ({refused[entry['token']].get('code')}) and made {entry['session']} all the same"


def each_acknowledged_create_stays(history):
    for op in history.answers("create"):
        final = history.final.get(op["session"])
        if (final is None and history.is_whole or final and final["state"] == "missing") and not history.may_be_lost(op["complete"]):
            yield f"{op['session']} was acknowledged at {op['complete']:.3f} and is not there"
        elif final and final["state"] == "ended" and not final.get("reason"):
            yield f"{op['session']} has ended without a reason"
        for later in history.by_session[op["session"]]:
            if later.get("code") == "session_not_found" and later["invoke"] > op["complete"] and not history.may_be_lost(op["complete"]):
                yield f"{op['session']} was acknowledged at {op['complete']:.3f} and not found at {later['invoke']:.3f} ({later['kind']} through {later['entry']})"
                break


def no_session_ends_unasked(history):
    """In a rig where nothing else ends a session: each that has ended was deleted, by name or with all of a client.

    One that was made for a single call (`ephemeral`) goes with it, or is left to its short idle clock when the node that served the call is lost.
    """
    named = {op.get("session") for op in history.ops if op["kind"] == "delete" and op["outcome"] != "failed"}
    clients = {op["client"] for op in history.ops if op["kind"] == "delete_all" and op["outcome"] != "failed"}
    for session, final in history.final.items():
        if final.get("is_for_one_call") and final.get("reason") in ("idle", "deleted: ephemeral"):
            continue
        if final["state"] == "ended" and session not in named and final.get("client") not in clients:
            yield f"{session} has ended ({final.get('reason')}) and nobody asked for that"


def what_has_ended_stays_so(history):
    for session, ops in history.by_session.items():
        ends = [op for op in ops if op["outcome"] == "ok" and (op["kind"] == "delete" or op.get("state") == "ended")]
        if not ends:
            continue
        first = min(ends, key=lambda op: op["complete"])
        if history.may_be_lost(first["complete"]):
            continue
        for op in ops:
            if op["outcome"] == "ok" and op["invoke"] > first["complete"] and op["kind"] != "delete" and op.get("state", "ended") != "ended":
                yield f"{session} had ended by {first['complete']:.3f} ({first['kind']}) and was {op['state']} at {op['invoke']:.3f} ({op['kind']})"
        if history.final.get(session, {}).get("state", "ended") not in ("ended", "missing"):
            yield f"{session} had ended by {first['complete']:.3f} and is {history.final[session]['state']} at the end"


def each_end_once(history):
    for session, ops in history.by_session.items():
        ends = {(op.get("reason"), op.get("ended_at")) for op in ops if op["outcome"] == "ok" and op.get("state") == "ended"}
        if len(ends) > 1 and not any(history.may_be_lost(op["complete"]) for op in ops if op.get("state") == "ended"):
            yield f"{session} has ended in several ways: {sorted(ends, key=str)}"
    told = collections.defaultdict(set)
    numbers = collections.defaultdict(set)
    for event in history.events:
        numbers[event["session"], event["number"]].add(event["type"])
        if event["type"] == "session.ended":
            told[event["session"]].add(event["number"])
    for (session, number), types in numbers.items():
        if len(types) > 1:
            yield f"event {number} of {session} is several: {sorted(types)}"
    listed = {event["session"] for event in history.events}
    for session, final in history.final.items():
        if session in listed and not history.losses and len(told[session]) != (1 if final["state"] == "ended" else 0):
            yield f"{session} is {final['state']} and has {len(told[session])} events that say that it ended"


def no_acknowledged_write_is_lost(history):
    """`value` is a counter in a label that one client writes: a read sees the last that was acknowledged, or one that was tried later."""
    for session, ops in history.by_session.items():
        writes = [op for op in ops if op["kind"] == "patch" and op["outcome"] != "failed"]
        reads = [op for op in ops if op["kind"] in ("get", "list") and op["outcome"] == "ok" and op.get("value") is not None]
        final = history.final.get(session)
        if final and final.get("value") is not None:
            reads.append({**final, "kind": "final", "invoke": float("inf"), "complete": float("inf")})
        for read in reads:
            sure = [op for op in writes if op["outcome"] == "ok" and op["complete"] < read["invoke"]]
            sure = [op for op in sure if not history.may_be_lost(op["complete"])]
            tried = {op["value"] for op in writes if op["invoke"] < read["complete"]} | {0}
            if sure and read["value"] < max(op["value"] for op in sure):
                yield f"{session}: {max(op['value'] for op in sure)} was written and {read['value']} was read ({read['kind']})"
            elif read["value"] not in tried:
                yield f"{session}: {read['value']} was read ({read['kind']}), which nobody had written"


def files_stay_with_their_generation(history):
    """A file that was written is read back as long as the generation is the same; `value` is what was written or read, None for no file."""
    for session, ops in history.by_session.items():
        writes = [op for op in ops if op["kind"] == "write" and op["outcome"] != "failed"]
        for read in (op for op in ops if op["kind"] == "read" and op["outcome"] == "ok"):
            before = [op for op in writes if op["outcome"] == "ok" and op["complete"] < read["invoke"]]
            if not before or before[-1].get("generation") is None or before[-1]["generation"] != read.get("generation"):
                continue
            possible = {before[-1]["value"]} | {op["value"] for op in writes if op["complete"] > before[-1]["invoke"] and op["invoke"] < read["complete"]}
            if read["value"] not in possible:
                yield f"{session}: a file of generation {read['generation']} had {read['value']} instead of {sorted(map(str, possible))}"


def generations_never_go_back(history):
    for session, ops in history.by_session.items():
        seen = sorted((op for op in ops if op["outcome"] == "ok" and op.get("generation") is not None), key=lambda op: op["complete"])
        completes = [op["complete"] for op in seen]
        highest, top = [], None
        for op in seen:
            top = op if top is None or op["generation"] > top["generation"] else top
            highest.append(top)
        for op in seen:
            at = bisect.bisect_left(completes, op["invoke"]) - 1
            if at >= 0 and highest[at]["generation"] > op["generation"] and not history.may_be_lost(highest[at]["complete"]):
                yield f"{session} was of generation {highest[at]['generation']} and then of {op['generation']} ({op['kind']} at {op['invoke']:.3f})"
        sandboxes = collections.defaultdict(set)
        for op in seen:
            if op.get("sandbox") and not history.may_be_lost(op["complete"]):
                sandboxes[op["generation"]].add(op["sandbox"])
        for generation, found in sandboxes.items():
            if len(found) > 1:
                yield f"generation {generation} of {session} had several sandboxes: {sorted(found)}"


def elsewhere(history, session, node, begin, end):
    """The home of a session when it was not `node` at any time from `begin` to `end`, as far as that is known for certain; else None."""
    homes = history.homes.get(session, [])
    before = [at for at, home in enumerate(homes) if home["begin"] <= begin - SLACK_S]
    after = [at for at, home in enumerate(homes) if home["end"] >= end]
    if not before or not after:
        return None
    found = {home["node"] for home in homes[min(before[-1], after[0]):max(before[-1], after[0]) + 1]}
    return None if node in found or "" in found else sorted(found)[0]


def only_the_home_acts(history):
    for ran in history.ran:
        home = elsewhere(history, ran["session"], ran["node"], ran["at"], ran["at"])
        if home:
            yield f"{ran['node']} began {ran['token']} of {ran['session']} at {ran['at']:.3f}, whose home was {home}"
    for op in history.ops:
        if op["outcome"] == "ok" and op["kind"] in WRITES and op.get("node"):
            home = elsewhere(history, op["session"], op["node"], op["invoke"], op["complete"])
            if home:
                yield f"{op['node']} answered {op['kind']} of {op['session']} at {op['complete']:.3f}, whose home was {home}"


def each_execution_runs_once(history):
    ran = collections.Counter(entry["token"] for entry in history.ran)
    for token, times in ran.items():
        if times > 1:
            where = sorted((entry["node"], round(entry["at"], 3)) for entry in history.ran if entry["token"] == token)
            yield f"execution {token} ran {times} times: {where}"
    for op in history.ops:
        if op["kind"] == "exec" and op["outcome"] == "ok" and op.get("exit") == "exited" and not ran[op["token"]]:
            yield f"execution {op['token']} was answered as done and never ran"
        if op["kind"] == "exec" and op["outcome"] == "failed" and op.get("is_only") and ran[op["token"]]:
            yield f"execution {op['token']} was refused ({op.get('code')}) and ran"


def most_at_once(history, is_counted):
    """By owner, the most sandboxes that were there at one time for certain, and when."""
    spans = collections.defaultdict(list)
    for ops in history.by_session.values():
        held = [op for op in ops if op["outcome"] == "ok" and op.get("sandbox") and op.get("state") in ("open", "paused") and is_counted(op)]
        of = collections.defaultdict(list)
        for op in held:
            of[op["sandbox"]].append(op)
        for seen in of.values():
            begin, end = min(op["complete"] for op in seen), max(op["invoke"] for op in seen)
            if begin < end and not history.may_be_lost(begin):
                spans[seen[0]["owner"]].append((begin, end))
    for owner, found in spans.items():
        count, most, when = 0, 0, 0
        for at, change in sorted([(begin, 1) for begin, _ in found] + [(end, -1) for _, end in found]):
            count += change
            if count > most:
                most, when = count, at
        yield owner, most, when


def no_cap_is_exceeded(history):
    for owner, most, when in most_at_once(history, lambda op: True):
        if history.cap and most > history.cap:
            yield f"{owner} had {most} sandboxes at {when:.3f}, and may have {history.cap}"


def no_budget_is_overspent(history):
    for owner, most, when in most_at_once(history, lambda op: op.get("flavor") == "paid"):
        if history.paid_cap and most > history.paid_cap:
            yield f"{owner} had {most} sandboxes that cost something at {when:.3f}, and can pay {history.paid_cap}"
    for entry in history.money:
        if entry["spent"] + entry.get("reserved", 0) > entry["cap"] + 1e-9:
            yield f"{entry['owner']} has spent {entry['spent']} and reserved {entry.get('reserved', 0)} of {entry['cap']}"


def nothing_is_left(history):
    for entry in history.left:
        yield f"left on {entry['node']}: {entry['kind']} {entry['name']}"


RULES = (one_session_for_each_key, each_create_once, each_acknowledged_create_stays, no_session_ends_unasked, what_has_ended_stays_so, each_end_once,
         no_acknowledged_write_is_lost, files_stay_with_their_generation, generations_never_go_back, only_the_home_acts,
         each_execution_runs_once, no_cap_is_exceeded, no_budget_is_overspent, nothing_is_left)


def check(entries, **options):
    """Each violation as (name of the rule, sentence)."""
    history = History(entries, **options)
    return [(rule.__name__, problem) for rule in RULES for problem in rule(history)]
