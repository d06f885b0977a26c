# SPDX-License-Identifier: Apache-2.0
"""The checker finds every kind of violation, and takes nothing for one that is none."""
import pytest

import checker


class Story:
    """Entries in the order of a clock that goes on by a second for each request, which takes half of that."""

    def __init__(self):
        self.now = 100.0
        self.entries = []

    def op(self, kind, outcome="ok", begin=None, end=None, **fields):
        self.now += 1
        begin = self.now if begin is None else begin
        self.entries.append({"what": "op", "kind": kind, "entry": "a", "owner": "ann", "invoke": begin,
                             "complete": begin + 0.5 if end is None else end, "outcome": outcome, **fields})
        return self

    def add(self, what, **fields):
        self.entries.append({"what": what, **fields})
        return self

    def final(self, session, state="open", **fields):
        if state == "ended":
            self.op("delete", "unknown", session=session, begin=50)
        return self.add("final", session=session, state=state, owner="ann", **fields)

    def broken(self, **options):
        return {rule for rule, _ in checker.check(self.entries, **options)}


@pytest.fixture
def story():
    return Story()


def test_a_session_that_is_made_used_and_deleted_breaks_nothing(story):
    story.op("create", session="s", key="k", token="t", state="open", generation=0)
    story.op("exec", session="s", token="x", state="open", generation=1, node="a", sandbox="b1", exit="exited")
    story.op("patch", session="s", value=1, state="open").op("get", session="s", value=1, state="open", generation=1)
    story.op("write", session="s", value="one", generation=1).op("read", session="s", value="one", generation=1)
    story.op("delete", session="s", state="ended", reason="deleted", ended_at="noon")
    story.op("get", session="s", state="ended", reason="deleted", ended_at="noon")
    story.add("ran", token="x", session="s", node="a", at=102.2).final("s", "ended", reason="deleted", token="t", value=1)
    story.add("event", session="s", number=1, type="session.created").add("event", session="s", number=2, type="session.ended")
    story.add("money", owner="ann", cap=1, spent=1, reserved=0)
    assert not story.broken(cap=1)


def test_two_open_sessions_with_one_key(story):
    story.op("create", session="s", key="k", state="open").op("create", session="r", key="k", state="open")
    story.op("get", session="s", state="open").op("get", session="r", state="open").final("s").final("r")
    assert story.broken() == {"one_session_for_each_key"}


def test_one_session_behind_the_other_may_have_the_same_key(story):
    story.op("create", session="s", key="k", state="open").op("get", session="s", state="open").op("delete", session="s", state="ended", reason="deleted")
    story.op("create", session="r", key="k", state="open").op("get", session="r", state="open")
    story.final("s", "ended", reason="deleted").final("r")
    assert not story.broken()


def test_a_create_that_was_done_twice(story):
    story.op("create", "unknown", token="t").final("s", token="t").final("r", token="t")
    assert story.broken() == {"each_create_once"}


def test_a_create_with_a_key_that_is_done_when_the_session_of_the_second_try_is_gone(story):
    story.op("create", "unknown", token="t", key="k").op("create", session="s", token="t", key="k", state="open").op("delete", session="s", state="ended")
    story.final("s", "ended", reason="deleted", token="t").final("r", token="t")
    assert not story.broken()
    story.final("q", token="t")
    assert story.broken() == {"each_create_once"}


def test_an_idempotency_key_with_two_sessions(story):
    story.op("create", session="s", token="t", idempotency_key="i", state="open").op("create", session="r", token="u", idempotency_key="i", state="open")
    story.final("s").final("r")
    assert story.broken() == {"each_create_once"}


def test_a_refused_create_that_was_done(story):
    story.op("create", "failed", token="t", code="capacity").final("s", token="t")
    assert story.broken() == {"each_create_once"}


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_an_acknowledged_create_that_is_gone(story, outcome):
    story.op("create", outcome, session="s", state="open").final("s", "missing")
    assert story.broken() == ({"each_acknowledged_create_stays"} if outcome == "ok" else set())


def test_a_lost_create_that_the_store_has_told_about(story):
    story.op("create", session="s", state="open").add("loss", since=100, at=103).final("s", "missing")
    assert not story.broken()
    story.op("create", session="r", state="open", begin=104).final("r", "missing")
    assert story.broken() == {"each_acknowledged_create_stays"}


def test_an_end_without_a_reason(story):
    story.op("create", session="s", state="open").final("s", "ended", reason="")
    assert story.broken() == {"each_acknowledged_create_stays"}


def test_a_session_that_is_not_found_for_a_while(story):
    story.op("create", session="s", state="open").op("get", "failed", session="s", code="session_not_found").final("s")
    assert story.broken() == {"each_acknowledged_create_stays"}


def test_a_session_that_ends_and_nobody_asked(story):
    story.op("create", session="s", state="open").add("final", session="s", state="ended", reason="node lost", client=3)
    assert story.broken() == {"no_session_ends_unasked"}
    story.op("delete_all", "unknown", client=3)
    assert not story.broken()


def test_a_session_for_one_call_may_be_left_to_its_idle_clock(story):
    story.add("final", session="s", state="ended", owner="ann", reason="idle", is_for_one_call=True)
    assert not story.broken()
    story.add("final", session="r", state="ended", owner="ann", reason="lifetime", is_for_one_call=True)
    assert story.broken() == {"no_session_ends_unasked"}


def test_sessions_that_were_not_looked_at_are_missing_only_from_a_whole_history(story):
    story.op("create", session="s", state="open")
    assert story.broken() == {"each_acknowledged_create_stays"} and not story.broken(is_whole=False)


def test_a_deleted_session_that_comes_back(story):
    story.op("create", session="s", state="open").op("delete", session="s", state="ended").op("get", session="s", state="open").final("s", "ended", reason="deleted")
    assert story.broken() == {"what_has_ended_stays_so"}


def test_a_deleted_session_that_is_open_at_the_end(story):
    story.op("create", session="s", state="open").op("delete", session="s", state="ended").final("s")
    assert story.broken() == {"what_has_ended_stays_so"}


def test_a_get_that_began_before_the_delete_was_answered(story):
    story.op("create", session="s", state="open").op("delete", session="s", state="ended", begin=103, end=105)
    story.op("get", session="s", state="open", begin=104.9, end=105.1).final("s", "ended", reason="deleted")
    assert not story.broken()


def test_a_session_that_ends_in_two_ways(story):
    story.op("create", session="s", state="open").op("get", session="s", state="ended", reason="idle", ended_at="noon")
    story.op("get", session="s", state="ended", reason="deleted", ended_at="noon").final("s", "ended", reason="deleted")
    assert story.broken() == {"each_end_once"}


@pytest.mark.parametrize("ends, expected", [(0, {"each_end_once"}), (1, set()), (2, {"each_end_once"})])
def test_an_ended_session_has_one_event_that_says_so(story, ends, expected):
    story.op("create", session="s", state="open").add("event", session="s", number=1, type="session.created")
    for number in range(ends):
        story.add("event", session="s", number=2 + number, type="session.ended")
    story.final("s", "ended", reason="deleted")
    assert story.broken() == expected


def test_an_open_session_with_an_event_that_says_that_it_ended(story):
    story.op("create", session="s", state="open").add("event", session="s", number=2, type="session.ended").final("s")
    assert story.broken() == {"each_end_once"}


def test_two_events_with_one_number(story):
    story.op("create", session="s", state="open").add("event", session="s", number=1, type="session.created")
    story.add("event", session="s", number=1, type="session.paused").final("s")
    assert story.broken() == {"each_end_once"}


def test_a_label_that_went_back(story):
    story.op("create", session="s", state="open").op("patch", session="s", value=1).op("patch", session="s", value=2)
    story.op("get", session="s", value=1).final("s", value=2)
    assert story.broken() == {"no_acknowledged_write_is_lost"}


def test_a_label_that_is_lost_at_the_end(story):
    story.op("create", session="s", state="open").op("patch", session="s", value=1).final("s", value=0)
    assert story.broken() == {"no_acknowledged_write_is_lost"}


def test_a_label_that_nobody_wrote(story):
    story.op("create", session="s", state="open").op("patch", "failed", session="s", value=1).op("get", session="s", value=1).final("s")
    assert story.broken() == {"no_acknowledged_write_is_lost"}


def test_a_write_without_an_answer_may_be_seen_or_not(story):
    story.op("create", session="s", state="open").op("patch", session="s", value=1).op("patch", "unknown", session="s", value=2)
    story.op("get", session="s", value=1).op("get", session="s", value=2).final("s", value=2)
    assert not story.broken()


def test_a_write_that_the_store_has_lost_and_said_so(story):
    story.op("create", session="s", state="open").op("patch", session="s", value=1).add("loss", since=101.6, at=103)
    story.op("get", session="s", value=0).final("s", value=0)
    assert not story.broken()


def test_a_file_that_is_gone_in_the_same_generation(story):
    story.op("create", session="s", state="open").op("write", session="s", value="one", generation=1).final("s")
    story.op("read", session="s", value=None, generation=2)
    assert not story.broken()
    story.entries.pop()
    story.op("read", session="s", value=None, generation=1)
    assert story.broken() == {"files_stay_with_their_generation"}


def test_a_generation_that_went_back(story):
    story.op("create", session="s", state="open", generation=0).op("exec", session="s", token="x", generation=2).op("get", session="s", generation=1).final("s")
    assert story.broken() == {"generations_never_go_back"}


def test_a_generation_with_two_sandboxes(story):
    story.op("create", session="s", state="open").op("get", session="s", generation=1, sandbox="p").op("get", session="s", generation=1, sandbox="q").final("s")
    assert story.broken() == {"generations_never_go_back"}


def test_a_node_that_begins_a_program_for_the_session_of_another(story):
    story.op("create", session="s", state="open").final("s")
    story.add("home", session="s", node="b", begin=100, end=100.1).add("home", session="s", node="b", begin=110, end=110.1)
    story.add("ran", token="x", session="s", node="a", at=105)
    assert story.broken() == {"only_the_home_acts"}


@pytest.mark.parametrize("homes", ["ab", "ba", "aa", "", "b"])
def test_a_node_that_was_home_before_or_behind_or_perhaps(story, homes):
    story.op("create", session="s", state="open").final("s")
    for at, node in zip((100, 110), homes):
        story.add("home", session="s", node=node, begin=at, end=at + 0.1)
    story.add("ran", token="x", session="s", node="a", at=105)
    assert not story.broken()


def test_a_change_that_another_node_than_the_home_answers(story):
    story.op("create", session="s", state="open").op("patch", session="s", node="a", value=1, begin=105).final("s", value=1)
    story.add("home", session="s", node="b", begin=100, end=100.1).add("home", session="s", node="b", begin=110, end=110.1)
    assert story.broken() == {"only_the_home_acts"}


def test_an_execution_that_ran_twice(story):
    story.op("create", session="s", state="open").op("exec", "unknown", session="s", token="x").final("s")
    story.add("ran", token="x", session="s", node="a", at=105).add("ran", token="x", session="s", node="b", at=106)
    assert story.broken() == {"each_execution_runs_once"}


def test_an_execution_that_never_ran(story):
    story.op("create", session="s", state="open").op("exec", session="s", token="x", exit="exited").final("s")
    assert story.broken() == {"each_execution_runs_once"}


def test_an_execution_that_was_refused_and_ran(story):
    story.op("create", session="s", state="open").op("exec", "failed", session="s", token="x", is_only=True).add("ran", token="x", session="s", node="a", at=105).final("s")
    assert story.broken() == {"each_execution_runs_once"}


def test_more_sandboxes_than_an_owner_may_have(story):
    for name in "srq":
        story.op("create", session=name, state="open").op("get", session=name, sandbox=f"sandbox-{name}", state="open").final(name)
    for name in "srq":
        story.op("get", session=name, sandbox=f"sandbox-{name}", state="open")
    assert story.broken(cap=3) == set()
    assert story.broken(cap=2) == {"no_cap_is_exceeded"}


def test_more_sandboxes_than_an_owner_can_pay(story):
    for name in "sr":
        story.op("create", session=name, state="open").op("get", session=name, sandbox=name, state="open", flavor="paid").final(name)
    for name in "sr":
        story.op("get", session=name, sandbox=name, state="open", flavor="paid")
    assert story.broken(paid_cap=2, cap=2) == set()
    assert story.broken(paid_cap=1, cap=2) == {"no_budget_is_overspent"}


def test_a_budget_that_is_overspent(story):
    story.add("money", owner="ann", cap=1, spent=0.7, reserved=0.3)
    assert not story.broken()
    story.add("money", owner="ann", cap=1, spent=0.8, reserved=0.3)
    assert story.broken() == {"no_budget_is_overspent"}


def test_something_that_is_left(story):
    story.add("left", node="a", kind="process", name="sleep")
    assert story.broken() == {"nothing_is_left"}


def test_every_rule_is_broken_by_a_test_here():
    source = open(__file__, encoding="utf-8").read()
    assert [rule.__name__ for rule in checker.RULES if f'"{rule.__name__}"' not in source] == []
