# SPDX-License-Identifier: Apache-2.0
"""The tools for files: what a model sees of them, and what it may change."""
import base64

import pytest
from toolbox import call, fails, ok, text_of

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg==")


def put(daemon, session, path, data):
    daemon.api("PUT", f"/sessions/{session}/files?path={path}", data, expect=201)


def get(daemon, session, path):
    return daemon.api("GET", f"/sessions/{session}/files?path={path}", expect=200).body


@pytest.fixture
def session(daemon):
    return daemon.session()


# --- read ---------------------------------------------------------------------------------------


def test_lines_have_numbers_and_pages(daemon, session):
    put(daemon, session, "many", "".join(f"line {n}\n" for n in range(1, 2501)).encode())
    text = ok(daemon, session, "read", path="many", limit=3)
    assert text == "     1\tline 1\n     2\tline 2\n     3\tline 3\n\n[lines 1 to 3 of 2500 are shown; go on with offset=4]"
    text = ok(daemon, session, "read", path="many", offset=2499)
    assert text == "  2499\tline 2499\n  2500\tline 2500\n"
    text = ok(daemon, session, "read", path="many")
    assert "[lines 1 to " in text and "25,000 characters" in text and len(text) < 25200
    assert "has only 2500 lines" in fails(daemon, session, "read", path="many", offset=9999)


def test_two_thousand_lines_are_shown_at_most(daemon, session):
    put(daemon, session, "short", b"x\n" * 2500)
    text = ok(daemon, session, "read", path="short")
    assert text.endswith("  2000\tx\n\n[lines 1 to 2000 of 2500 are shown; go on with offset=2001]")


def test_long_lines_are_cut(daemon, session):
    put(daemon, session, "wide", ("ä" * 5000 + "\nend").encode())
    text = ok(daemon, session, "read", path="wide")
    assert text == "     1\t" + "ä" * 4000 + " … [line cut: it has 10,000 bytes]\n     2\tend\n"


def test_what_is_not_text_is_said_or_shown(daemon, session):
    put(daemon, session, "dot.png", PNG)
    result = call(daemon, session, "read", path="dot.png")
    assert result["content"][1] == {"type": "image", "mime_type": "image/png", "data": base64.b64encode(PNG).decode()}
    put(daemon, session, "raw", b"\x7fELF\0\0\0")
    assert "not text (application/x-executable" in ok(daemon, session, "read", path="raw")
    put(daemon, session, "empty", b"")
    assert ok(daemon, session, "read", path="empty") == "(empty is empty)"
    assert "no file nothing" in fails(daemon, session, "read", path="nothing")
    assert "is a directory. Use ls" in fails(daemon, session, "read", path="/usr")
    assert "not a regular file" in fails(daemon, session, "read", path="/dev/null")


# --- write --------------------------------------------------------------------------------------


def test_a_new_file_is_made_with_its_directories(daemon, session):
    text = ok(daemon, session, "write", path="a/b/new.txt", content="one\ntwo\n")
    assert text == "Wrote a/b/new.txt: 2 lines, 8 bytes, a new file."
    assert get(daemon, session, "a/b/new.txt") == b"one\ntwo\n"
    assert "in place of the old content" in ok(daemon, session, "write", path="a/b/new.txt", content="")
    assert get(daemon, session, "a/b/new.txt") == b""


def test_what_was_not_read_is_not_overwritten(daemon, session):
    put(daemon, session, "theirs", b"precious")
    text = fails(daemon, session, "write", path="theirs", content="mine")
    assert "File theirs exists but has not been read this session. Read it first" in text
    assert get(daemon, session, "theirs") == b"precious"
    ok(daemon, session, "read", path="./theirs")
    ok(daemon, session, "write", path="theirs", content="mine")
    assert get(daemon, session, "theirs") == b"mine"


def test_what_has_changed_since_it_was_read_is_not_overwritten(daemon, session):
    ok(daemon, session, "write", path="note", content="first")
    ok(daemon, session, "bash", command="echo more >> note")
    assert "has changed since it was read" in fails(daemon, session, "write", path="note", content="second")
    assert get(daemon, session, "note") == b"firstmore\n"
    ok(daemon, session, "read", path="note")
    ok(daemon, session, "write", path="note", content="second")


def test_reading_is_forgotten_with_the_sandbox(daemon, session):
    ok(daemon, session, "write", path="note", content="first")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    put(daemon, session, "note", b"other")
    assert "[notice] The sandbox of this session was reset" in fails(daemon, session, "write", path="note", content="x")


def test_links_and_directories_are_not_written_over(daemon, session):
    ok(daemon, session, "bash", command="echo x > real; ln -s real link; mkdir folder")
    assert "symbolic link" in fails(daemon, session, "write", path="link", content="y")
    assert "is a directory" in fails(daemon, session, "write", path="folder", content="y")
    assert get(daemon, session, "real") == b"x\n"


# --- edit ---------------------------------------------------------------------------------------


def test_an_edit_replaces_what_is_there_once(daemon, session):
    ok(daemon, session, "write", path="code.py", content="a = 1\nb = 2\nc = 3\n")
    text = ok(daemon, session, "edit", path="code.py", old="b = 2", new="b = 20")
    assert text == "Edited code.py: 1 place, the first in line 2.\nIt is now:\n     1\ta = 1\n     2\tb = 20\n     3\tc = 3\n"
    assert get(daemon, session, "code.py") == b"a = 1\nb = 20\nc = 3\n"
    ok(daemon, session, "edit", path="code.py", old="c = 3\n", new="d = 4\n", mode="append_after")
    ok(daemon, session, "edit", path="code.py", old="a = 1", new="# head\n", mode="prepend_before")
    assert get(daemon, session, "code.py") == b"# head\na = 1\nb = 20\nc = 3\nd = 4\n"
    ok(daemon, session, "write", path="code.py", content="known after edits")


def test_an_edit_that_is_not_clear_changes_nothing(daemon, session):
    ok(daemon, session, "write", path="f", content="x\nx\ny z\nq\n")
    assert "old_str appears 2 times in f (lines 1, 2). Use replace_all=true or provide more context." in \
        fails(daemon, session, "edit", path="f", old_str="x", new_str="w")
    assert "old_str not found in f." in fails(daemon, session, "edit", path="f", old_str="nothing", new_str="w")
    assert "Its first line is line 3" in fails(daemon, session, "edit", path="f", old="y z\nr", new="w")
    assert "are the same" in fails(daemon, session, "edit", path="f", old="q", new="q")
    assert get(daemon, session, "f") == b"x\nx\ny z\nq\n"
    assert "2 places" in ok(daemon, session, "edit", path="f", old="x", new="w", replace_all=True)
    assert get(daemon, session, "f") == b"w\nw\ny z\nq\n"


def test_an_edit_tolerates_spaces_and_typography_and_says_so(daemon, session):
    ok(daemon, session, "write", path="f", content="def f():  \n    return “x” – 1\n")
    text = ok(daemon, session, "edit", path="f", old="def f():\n    return \"x\" - 1", new="def f():\n    return 2")
    assert "not in the file exactly" in text and "typographic" in text
    assert get(daemon, session, "f") == b"def f():\n    return 2\n"


def test_a_file_has_to_be_read_before_it_is_edited(daemon, session):
    put(daemon, session, "f", b"text")
    assert "has not been read this session" in fails(daemon, session, "edit", path="f", old="text", new="x")
    ok(daemon, session, "read", path="f")
    put(daemon, session, "f", b"text and more")
    assert "has changed since you read it" in ok(daemon, session, "edit", path="f", old="text", new="x")
    assert get(daemon, session, "f") == b"x and more"


# --- ls, glob, grep -----------------------------------------------------------------------------


def test_directories_are_listed(daemon, session):
    assert ok(daemon, session, "ls") == "(the workspace is empty)"
    ok(daemon, session, "bash", command="mkdir -p d/e; echo 12345 > d/f; ln -s d/f l; touch d/e/g")
    assert ok(daemon, session, "ls") == "d/\nl -> d/f\n"
    assert ok(daemon, session, "ls", path="d", depth=2) == "d/e/\nd/e/g  (0 B)\nd/f  (6 B)\n"
    ok(daemon, session, "bash", command="mkdir many; cd many; touch $(seq 600); cd ..")
    assert "[500 of 600 are shown" in ok(daemon, session, "ls", path="many")
    assert "not a directory" in fails(daemon, session, "ls", path="l")


def test_files_are_found_by_name(daemon, session):
    ok(daemon, session, "bash", command="mkdir -p a/b; touch a/x.py a/b/y.py a/b/.z.py a/n.txt")
    assert ok(daemon, session, "glob", pattern="**/*.py") == "a/b/y.py  (0 B)\na/x.py  (0 B)\n"
    assert ".z.py" in ok(daemon, session, "glob", pattern="**/*.py", path="a", hidden=True)
    assert "[1 of 2 are shown" in ok(daemon, session, "glob", pattern="**/*.py", limit=1)
    assert "Nothing matches" in ok(daemon, session, "glob", pattern="*.rs")
    assert "not a pattern" in fails(daemon, session, "glob", pattern="[")


def test_lines_are_found_by_what_is_in_them(daemon, session):
    put(daemon, session, "a/one.py", b"import os\nprint(1)\nend\n")
    put(daemon, session, "a/two.txt", b"import nothing\n")
    put(daemon, session, "one.py", b"import sys\n")
    assert ok(daemon, session, "grep", pattern="^import (os|sys)") == "a/one.py:1:import os\none.py:1:import sys\n"
    assert ok(daemon, session, "grep", pattern="import", glob="*.txt") == "a/two.txt:1:import nothing\n"
    assert ok(daemon, session, "grep", pattern="IMPORT", path="one.py", ignore_case=True) == "one.py:1:import sys\n"
    assert ok(daemon, session, "grep", pattern="print(1)", literal=True, context=1) == \
        "a/one.py-1-import os\na/one.py:2:print(1)\na/one.py-3-end\n"
    assert ok(daemon, session, "grep", pattern="absent") == "No line matches."
    assert "[there are more" in ok(daemon, session, "grep", pattern="import", limit=1)
    assert "malformed" in fails(daemon, session, "grep", pattern="(")


# --- upload, download, status -------------------------------------------------------------------


def test_bytes_go_in_and_out(daemon, session):
    encoded = base64.b64encode(PNG).decode()
    result = call(daemon, session, "upload", path="pictures/dot.png", content=encoded)
    assert not result["is_error"] and get(daemon, session, "pictures/dot.png") == PNG
    assert result["content"][1]["mime_type"] == "image/png" and result["content"][1]["name"] == "dot.png"
    assert "exists already" in fails(daemon, session, "upload", path="pictures/dot.png", content="")
    ok(daemon, session, "upload", path="pictures/dot.png", content="", overwrite=True)
    assert "not base64" in fails(daemon, session, "upload", path="x", content="?")
    ok(daemon, session, "upload", path="pictures/dot.png", content=encoded, overwrite=True)
    result = call(daemon, session, "download", path="pictures/dot.png")
    assert result["content"][1]["data"] == encoded and result["content"][1]["uri"].endswith("/pictures/dot.png")
    ok(daemon, session, "bash", command="head -c 9000000 /dev/zero > large")
    result = call(daemon, session, "download", path="large")
    assert not result["is_error"] and "data" not in result["content"][1] and result["content"][1]["size"] == 9000000


def test_the_status_starts_nothing(daemon):
    session = daemon.session(preload=False)
    assert "not started yet" in ok(daemon, session, "sandbox_status")
    assert daemon.api("GET", f"/sessions/{session}").json["generation"] == 0
    ok(daemon, session, "bash", command="true")
    text = ok(daemon, session, "sandbox_status")
    assert text.startswith("Sandbox: ready\n") and "Ends in " in text and session in text


def test_a_large_file_is_read_without_holding_others_up(daemon, session):
    def ok_in_time(name, **arguments):
        """A call of a tool that takes a while."""
        result = daemon.api("POST", f"/sessions/{session}/tools/{name}", arguments, expect=200, timeout=120).json
        assert not result["is_error"], result
        return text_of(result)

    ok_in_time("bash", command="yes 'a line of a large file' | head -c 150000000 > large")
    text = ok_in_time("read", path="large", offset=6000000, limit=1)
    assert text.startswith("6000000\ta line of a large file\n") and "of more than 6" in text
    text = ok(daemon, session, "read", path="large", limit=1)
    assert "[lines 1 to 1 of more than " in text
