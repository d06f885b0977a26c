# SPDX-License-Identifier: Apache-2.0
"""What the documentation says is what the program does."""
import re
import subprocess
import sys

import pytest

from conftest import ROOT, SANDGLASS

sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import markdown  # noqa: E402
import reference  # noqa: E402

# Every page in the tree, not those that a build or a package manager has put there.
PAGES = sorted(ROOT / name for name in subprocess.check_output(["git", "-C", ROOT, "ls-files", "*.md"], text=True).split()
               if (ROOT / name).exists()) if (ROOT / ".git").exists() else sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def written():
    return reference.pages(SANDGLASS)


@pytest.mark.parametrize("name", ["commands.md", "routes.md", "settings.md", "metrics.md"])
def test_the_pages_that_are_written_from_the_program_are_fresh(written, name):
    assert (ROOT / "docs" / "reference" / name).read_text() == written[name], "run scripts/docs"


def test_every_link_and_anchor_leads_somewhere():
    anchors = {page: {anchor for _, _, anchor in markdown.headings(page.read_text())} for page in PAGES}
    broken = []
    for page in PAGES:
        for target in markdown.links(page.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and anchor not in anchors.get(file, {anchor})):
                broken.append(f"{page.relative_to(ROOT)} → {target}")
    assert not broken


def test_every_page_of_the_documentation_can_be_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / target.partition("#")[0]).resolve() for target in markdown.links(page.read_text()) if ":" not in target]
        waiting += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page.is_relative_to(ROOT / "docs") and page not in reached] == []


def test_every_command_of_the_readme_exists():
    known = subprocess.run([SANDGLASS, "--help"], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^  (\w+)  ", known, re.M))
    used = set(re.findall(r"^(?:build/)?sandglass (\w+)", (ROOT / "README.md").read_text(), re.M))
    assert used and used <= names
