# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation: every page is there, every link resolves, and the search finds what people ask for."""
import html.parser
import json
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

from browser import CHROMIUM, Browser
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import docs_site  # noqa: E402
import markdown  # noqa: E402

QUESTIONS = {
    "internet for a session": "how-to/internet.html",
    "mount a directory": "how-to/mount.html",
    "install numpy": "how-to/packages.html",
    "limit cost": "how-to/cost.html",
    "keep files": "how-to/keep-files.html",
    "run as non-root": "how-to/non-root.html",
    "Docker images": "how-to/images.html",
    "expose a port": "how-to/ports.html",
    "pass a secret": "how-to/secrets.html",
    "stream output": "how-to/streaming.html",
    "survive a daemon restart": "how-to/restart.html",
    "many users": "how-to/many-users.html",
    "delete everything": "how-to/delete-everything.html",
    "why did it die": "how-to/why-did-it-die.html",
    "many machines": "how-to/many-machines.html",
    "use it in CI": "how-to/ci.html",
}


class Reader(html.parser.HTMLParser):
    """Links, ids and what does not belong into a page; fails on tags that do not match."""

    VOID = {"meta", "link", "img", "input", "br", "hr"}

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.open, self.inline, self.headings = [], [], [], [], 0
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.headings += tag == "h1"
        self.inline += [name for name in attributes if name == "style" or name.startswith("on")] + (["script"] if tag == "script" and "src" not in attributes else [])
        assert tag != "img" or attributes.get("alt"), "a picture without words"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    subprocess.run([ROOT / "scripts" / "site", out], check=True, timeout=60)
    return out


@pytest.fixture(scope="module")
def pages(site):
    return {page: Reader(page.read_text()) for page in site.rglob("*.html")}


def test_every_page_of_the_documentation_is_a_page_of_the_site(site, pages):
    for source in docs_site.sources():
        page = site / source.target
        assert pages[page].headings == 1, page
        anchors = [anchor for _, _, anchor in markdown.headings(source.text)]
        assert set(anchors) <= set(pages[page].ids), page


def test_every_link_of_the_site_resolves(site, pages):
    broken = []
    for page, read in pages.items():
        assert len(read.ids) == len(set(read.ids)), f"two elements with one id in {page}"
        for link in read.links:
            if re.match(r"(https?|mailto):", link):
                continue
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.is_file() or not target.is_relative_to(site) or (anchor and target in pages and anchor not in pages[target].ids):
                broken.append(f"{page.relative_to(site)} → {link}")
    assert not broken


def test_a_page_asks_for_files_of_the_site_alone(pages):
    for page, read in pages.items():
        assert not read.inline, page
        text = page.read_text()
        assert "script-src 'self'" in text and "unsafe-inline" not in text
        assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//', text), page


def test_the_search_finds_the_page_of_each_question(site, work):
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not installed")
    script = work / "ask.js"
    script.write_text("global.window = {}; const fs = require('fs'); const vm = require('vm');\n"
                      "for (const name of ['search-index.js', 'search.js']) vm.runInThisContext(fs.readFileSync(process.argv[2] + '/' + name, 'utf8'));\n"
                      "console.log(JSON.stringify(JSON.parse(process.argv[3]).map((one) => window.searchPages(one, 3).map((found) => found.address.split('#')[0]))));\n")
    done = subprocess.run([node, script, site, json.dumps(list(QUESTIONS))], capture_output=True, text=True, check=True, timeout=60)
    found = dict(zip(QUESTIONS, json.loads(done.stdout)))
    assert {question: found[question] for question, page in QUESTIONS.items() if page not in found[question]} == {}


@pytest.mark.parametrize("start", ["README.md", "docs/README.md"])
def test_each_question_is_answered_within_two_clicks(start):
    first = {(ROOT / start).parent / target.partition("#")[0] for target in markdown.links((ROOT / start).read_text()) if ":" not in target}
    second = {page.parent / target.partition("#")[0] for page in first if page.suffix == ".md" for target in markdown.links(page.read_text()) if ":" not in target}
    reached = {path.resolve() for path in first | second}
    assert [page for page in QUESTIONS.values() if (ROOT / "docs" / page).with_suffix(".md") not in reached] == []


def test_text_is_shown_and_never_becomes_a_tag():
    rendered = markdown.Page("# A <b>\n\n`<i>` and <script>alert(1)</script> & [x](javascript:alert) \\| **y** *z*\n\n| a | b |\n| --- | --- |\n| `c\\|d` | <e> |\n").render()
    assert "<script>" not in rendered and "<b>" not in rendered and "<e>" not in rendered
    assert "<code>&lt;i&gt;</code>" in rendered and "<code>c|d</code>" in rendered and "<strong>y</strong> <em>z</em>" in rendered


def test_the_search_works_in_a_browser_without_a_server(site, work):
    if not CHROMIUM:
        pytest.skip("there is no Chromium here")
    folder = work / "browser"
    folder.mkdir()
    browser = Browser(folder)
    try:
        tab = browser.open((site / "how-to" / "ports.html").as_uri())
        tab.wait_for("document.readyState == 'complete' && typeof searchPages == 'function'", "the page is there")
        tab.evaluate("query.value = 'install numpy'; query.dispatchEvent(new Event('input')); 1")
        assert tab.evaluate("results.querySelector('a').href") == (site / "how-to" / "packages.html").as_uri()
        assert tab.evaluate("getComputedStyle(results).position") == "absolute"
    finally:
        browser.stop()
