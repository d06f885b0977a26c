# SPDX-License-Identifier: Apache-2.0
"""Every command line of ours in the documents is one that the program accepts, also where the page is not typed as a whole."""
import re
import shlex
import subprocess

import pytest

from conftest import ROOT, SANDGLASS

PAGES = sorted(path for folder in ("docs", "deploy", "examples") for path in (ROOT / folder).rglob("*.md")) + [ROOT / "README.md"]
LINE = re.compile(r"^\s*(?:\$ |sudo )*(?:[A-Z_]+=\S+ )*sandglass (.+)$")
INLINE = re.compile(r"`sandglass ([a-z][^`]*)`")
ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&", "2>", "--", "…", "..."}


def lines_of(page):
    """The commands in blocks of code, with their continuations, and those in sentences."""
    is_code, continued = False, ""
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            is_code, continued = not is_code, ""
            continue
        if is_code or line.startswith("    "):
            line, continued = continued + line, ""
            if line.endswith("\\"):
                continued = line[:-1]
            elif match := LINE.match(line):
                yield match[1]
        else:
            yield from INLINE.findall(line)


def words_of(text):
    """The words that are for us: up to a program to run, an operator of the shell or a comment. Words in brackets may be left out."""
    lexer = shlex.shlex(re.sub(r"\[[^\]]*\]", "", text), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = []
    for word in lexer:
        if word in ENDS or set(word) <= set("|&;<>"):
            break
        words.append(word)
    return words


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_program_accepts_every_command(page):
    refused = []
    for text in lines_of(page):
        words = words_of(text)
        done = subprocess.run([SANDGLASS, *words, "--help"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            refused.append((text, done.stderr.strip()[-200:]))
    assert not refused


def test_an_option_that_does_not_exist_would_be_found():
    done = subprocess.run([SANDGLASS, "run", "--bogus", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "--bogus" in done.stderr
