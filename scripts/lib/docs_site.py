# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: one HTML page for each Markdown page, a menu by rooms, and a search that runs in the browser.

Everything is relative and nothing is fetched, so that the site works from any web server and from a directory. No script and no style is
inline: the pages allow files of the site alone.
"""
import html
import json
import os
import pathlib
import re
import shutil
import sys

import markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = pathlib.Path(__file__).resolve().parent / "site_files"
POLICY = "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'"
ROOMS = (("Start", "start"), ("How to", "how-to"), ("Reference", "reference"), ("Design", "design"))


class Source:
    """One Markdown page and where it goes."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_text()
        inside = path.relative_to(ROOT)
        self.inside = inside.relative_to("docs") if inside.parts[0] == "docs" else pathlib.Path(*inside.parts)
        found = [heading for level, heading, _ in markdown.headings(self.text) if level == 1]
        self.title = found[0] if found else path.stem
        parts = list(self.inside.parts)
        parts[-1] = "index.html" if parts[-1] == "README.md" else parts[-1][:-3] + ".html"
        if inside == pathlib.Path("README.md"):
            parts = ["index.html"]
        elif inside == pathlib.Path("docs/README.md"):
            parts = ["contents.html"]
        self.target = pathlib.PurePosixPath(*parts)

    def room(self):
        return self.inside.parts[0] if len(self.inside.parts) > 1 else ""


def sources():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [Source(path) for path in pages if path.exists()]


class Site:
    def __init__(self, out):
        self.out = pathlib.Path(out)
        self.pages = sources()
        self.by_path = {page.path: page for page in self.pages}
        self.copied = set()

    def relative(self, target, page):
        return os.path.relpath(str(target), str(page.target.parent)).replace(os.sep, "/")

    def link(self, page):
        def resolve(target):
            if re.match(r"[a-z]+:|#", target):
                return target
            path, mark, anchor = target.partition("#")
            file = (page.path.parent / path).resolve()
            if file.is_dir() and (file / "README.md") in self.by_path:
                file = file / "README.md"
            if file in self.by_path:
                return self.relative(self.by_path[file].target, page) + mark + anchor
            return self.relative(self.copy(file), page) + mark + anchor
        return resolve

    def copy(self, file):
        """A file that a page links to: pictures and sources are part of the site; of a directory a list."""
        inside = file.relative_to(ROOT)
        pictures = pathlib.Path("docs") / "pictures"
        target = pathlib.PurePosixPath("pictures", inside.name) if inside.parent == pictures else pathlib.PurePosixPath("source", *inside.parts)
        if file.is_dir():
            return self.list(file, target / "index.html")
        if target.parts[0] == "source" and target.suffix != ".svg":
            target = target.with_name(target.name + ".txt")  # browsers show it, and none of it is run
        if target not in self.copied:
            self.copied.add(target)
            (self.out / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self.out / target)
        return target

    def list(self, directory, target):
        if target not in self.copied:
            self.copied.add(target)
            page = type("Listing", (), {"target": target, "title": directory.name, "path": directory / "README.md", "room": lambda self: ""})()
            files = sorted(one for one in directory.rglob("*") if one.is_file() and "node_modules" not in one.parts and one.suffix in LISTED)
            rows = "".join(f'<li><a href="{self.relative(self.copy(one), page)}">{html.escape(str(one.relative_to(directory)))}</a></li>\n' for one in files)
            self.write(page, f"<h1>{html.escape(directory.name)}</h1>\n<ul>\n{rows}</ul>")
        return target

    def entry(self, one, page):
        current = ' aria-current="page"' if one.target == page.target else ""
        return f'<li><a href="{self.relative(one.target, page)}"{current}>{html.escape(one.title)}</a></li>'

    def menu(self, page):
        parts = [f'<a href="{self.relative("contents.html", page)}">All pages</a>']
        for title, room in ROOMS:
            rows = [one for one in self.pages if one.room() == room and one.path.name != "README.md" and len(one.inside.parts) == 2]
            rows.sort(key=lambda one: ORDER.get(one.inside.stem, 99))
            items = "".join(self.entry(one, page) for one in rows)
            if items:
                parts.append(f"<details{' open' if room == page.room() or room == 'start' else ''}><summary>{title}</summary><ul>{items}</ul></details>")
        return "\n".join(parts)

    def write(self, page, body):
        up = self.relative(".", page)
        base = "" if up == "." else up + "/"
        text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(page.title)} · Sandglass</title>
<link rel="stylesheet" href="{base}site.css">
<script src="{base}search-index.js" defer></script>
<script src="{base}search.js" defer></script>
</head>
<body data-base="{base}">
<a class="skip" href="#content">Skip to the content</a>
<header><a class="home" href="{base}index.html">Sandglass</a>
<div class="search" role="search"><label for="query" class="hidden">Search</label>
<input id="query" type="search" placeholder="Search" autocomplete="off" aria-controls="results"><ol id="results" aria-label="Results" hidden></ol></div></header>
<nav aria-label="Pages">
{self.menu(page)}
</nav>
<main id="content">
{body}
</main>
</body>
</html>
"""
        file = self.out / page.target
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def index(self):
        """One entry for each section: [address, title of the page, heading, words of the text]."""
        entries = []
        for page in self.pages:
            for heading, anchor, text in sections(page.text):
                address = str(page.target) + (f"#{anchor}" if anchor else "")
                entries.append([address, page.title, heading, " ".join(text.split())[:4000], ROOM_WEIGHT.get(page.room(), 1)])
        return "window.searchIndex = " + json.dumps(entries, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/") + ";\n"

    def make(self):
        self.out.mkdir(parents=True, exist_ok=True)
        for page in self.pages:
            self.write(page, markdown.Page(page.text, self.link(page)).render())
        (self.out / "search-index.js").write_text(self.index())
        for file in FILES.iterdir():
            shutil.copyfile(file, self.out / file.name)


LISTED = {".py", ".ts", ".sh", ".md", ".json", ".yaml", ".mjs"}
ORDER = {name: number for number, name in enumerate(
    "install first-session from-docker from-e2b internet mount packages cost keep-files non-root images ports secrets streaming restart many-users "
    "delete-everything why-did-it-die many-machines ci commands routes settings errors metrics".split())}
ROOM_WEIGHT = {"how-to": 4, "start": 2, "reference": 1, "design": 0.7, "decisions": 0.5}


def sections(text):
    """(heading, anchor, text) of each part of a page; the first has no anchor."""
    anchors, fence = markdown.Anchors(), None
    heading, anchor, words = "", "", []
    for line in re.sub(r"<!--.*?-->", "", text, flags=re.S).splitlines():
        mark = markdown.FENCE.match(line)
        if mark:
            fence = None if fence else mark[2]
            continue
        match = None if fence else markdown.HEADING.match(line)
        if match:
            if words or heading:
                yield heading, anchor, " ".join(words)
            name = anchors.of(match[2])
            heading, anchor, words = markdown.plain(match[2]), "" if len(match[1]) == 1 else name, []
        else:
            words.append(re.sub(r"[|#>]+|-{3,}", " ", markdown.plain(line)))
    yield heading, anchor, " ".join(words)


if __name__ == "__main__":
    Site(sys.argv[1]).make()
