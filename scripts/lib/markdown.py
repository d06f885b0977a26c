# SPDX-License-Identifier: Apache-2.0
"""Markdown to HTML, for the subset that the documentation uses: headings, paragraphs, lists, tables, fences, indented code, quotes, images,
links, emphasis and code. Text is escaped; HTML in a page is shown as text, except comments, which are left out.
"""
import html
import re
import unicodedata

FENCE = re.compile(r"^(\s*)(```+)(.*)$")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
ITEM = re.compile(r"^(\s*)([-*]|\d+\.)\s+(.*)$")
RULE = re.compile(r"^\s*(?:---+|\*\*\*+)\s*$")
SEPARATOR = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")


def plain(text):
    """The text of a line without its markup."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]", "", text)


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    text = plain(heading).lower()
    kept = "".join(one for one in text if one in " -_" or unicodedata.category(one)[0] in "LN")
    return kept.replace(" ", "-")


class Anchors:
    """Anchors of a page: the second of two equal headings has -1 behind it."""

    def __init__(self):
        self.used = {}

    def of(self, heading):
        name = slug(heading)
        count = self.used.get(name, 0)
        self.used[name] = count + 1
        return f"{name}-{count}" if count else name


def lines_outside_code(text):
    """The lines of a page that are not inside of a fence."""
    fence = None
    for line in text.splitlines():
        match = FENCE.match(line)
        if match and (fence is None or match[2].startswith(fence)):
            fence = None if fence else match[2]
        elif fence is None:
            yield line


def headings(text):
    """(level, heading, anchor) of each heading of a page."""
    anchors = Anchors()
    for line in lines_outside_code(text):
        match = HEADING.match(line)
        if match:
            yield len(match[1]), plain(match[2]), anchors.of(match[2])


def links(text):
    """Targets of all links and images of a page."""
    for line in lines_outside_code(text):
        if not line.startswith("    "):
            yield from re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(`+).*?\1", "", line))


class Page:
    """Renders one page; `link` turns the target of a link into that of the site."""

    def __init__(self, text, link=lambda target: target):
        self.lines = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S).splitlines()
        self.link = link
        self.anchors = Anchors()

    # Spans

    def spans(self, text):
        held = []

        def hold(markup):
            held.append(markup)
            return f"\0{len(held) - 1}\0"

        text = re.sub(r"(`+)(.+?)\1", lambda match: hold(f"<code>{html.escape(match[2].strip())}</code>"), text)
        text = re.sub(r"\\([\\|`*_\[\]<>])", lambda match: hold(html.escape(match[1])), text)
        text = html.escape(html.unescape(text), quote=False)
        text = re.sub(r"!\[([^\]]*)\]\(([^)\s]+)\)", lambda match: hold(self.image(match[1], match[2])), text)
        text = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", lambda match: hold(f'<a href="{html.escape(self.link(match[2]))}">') + match[1] + hold("</a>"), text)
        text = re.sub(r"(?<![\w/])(https?://[^\s<)]*[^\s<).,;:])", lambda match: hold(f'<a href="{html.escape(match[1])}">{match[1]}</a>'), text)
        text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
        text = re.sub(r"(?<![\w*])\*([^\s*](?:[^*]*[^\s*])?)\*(?![\w*])", r"<em>\1</em>", text)
        while "\0" in text:
            text = re.sub(r"\0(\d+)\0", lambda match: held[int(match[1])], text)
        return text

    def image(self, words, target):
        return f'<img src="{html.escape(self.link(target))}" alt="{html.escape(words)}" loading="lazy">'

    # Blocks

    def render(self):
        return self.blocks(self.lines)

    def blocks(self, lines):
        out, at = [], 0
        while at < len(lines):
            at = self.block(lines, at, out)
        return "\n".join(out)

    def block(self, lines, at, out):
        """Renders the block that begins at a line, and returns where the next one begins."""
        line = lines[at]
        if not line.strip():
            return at + 1
        if FENCE.match(line):
            return self.fence(lines, at, out)
        if HEADING.match(line):
            return self.heading(line, at, out)
        if RULE.match(line):
            out.append("<hr>")
            return at + 1
        if line.startswith("    "):
            return self.indented(lines, at, out)
        if line.lstrip().startswith("|") and at + 1 < len(lines) and SEPARATOR.match(lines[at + 1]):
            return self.table(lines, at, out)
        if ITEM.match(line):
            return self.items(lines, at, out)
        if line.startswith(">"):
            return self.quote(lines, at, out)
        return self.paragraph(lines, at, out)

    def heading(self, line, at, out):
        match = HEADING.match(line)
        level, anchor = len(match[1]), self.anchors.of(match[2])
        mark = f' <a class="anchor" href="#{anchor}" aria-label="Link to this section">#</a>' if level > 1 else ""
        out.append(f'<h{level} id="{anchor}">{self.spans(match[2])}{mark}</h{level}>')
        return at + 1

    def code(self, text, language=""):
        name = f' class="language-{html.escape(language)}"' if language else ""
        return f'<pre tabindex="0"><code{name}>{html.escape(text, quote=False)}\n</code></pre>'

    def fence(self, lines, at, out):
        indent, mark, language = FENCE.match(lines[at]).groups()
        end = at + 1
        while end < len(lines) and not lines[end].strip().startswith(mark):
            end += 1
        inside = [line[len(indent):] if line.startswith(indent) else line for line in lines[at + 1:end]]
        out.append(self.code("\n".join(inside), language.strip()))
        return end + 1

    def indented(self, lines, at, out):
        end = at
        while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
            end += 1
        out.append(self.code("\n".join(line[4:] for line in lines[at:end]).rstrip()))
        return end

    def cells(self, line):
        line = line.strip()
        line = line[1:] if line.startswith("|") else line
        line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
        return [part.strip() for part in re.split(r"(?<!\\)\|", line)]

    def table(self, lines, at, out):
        head = self.cells(lines[at])
        end = at + 2
        rows = []
        while end < len(lines) and lines[end].lstrip().startswith("|"):
            rows.append(self.cells(lines[end]))
            end += 1
        # A backslash before a bar is markup of the table, also inside of code.
        render = lambda text: self.spans(text.replace("\\|", "|"))  # noqa: E731
        body = "".join("<tr>" + "".join(f"<td>{render(one)}</td>" for one in row) + "</tr>\n" for row in rows)
        top = "".join(f"<th scope=\"col\">{render(one)}</th>" if one else "<td></td>" for one in head)
        out.append(f'<div class="table" tabindex="0" role="region" aria-label="Table"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody></table></div>')
        return end

    def items(self, lines, at, out):
        indent, mark, _ = ITEM.match(lines[at]).groups()
        tag = "ul" if mark in "-*" else "ol"
        rendered, end = [], at
        while end < len(lines):
            match = ITEM.match(lines[end])
            if not match or len(match[1]) != len(indent):
                break
            inside, end = self.item(lines, end, match)
            rendered.append(f"<li>{inside}</li>")
        out.append(f"<{tag}>\n" + "\n".join(rendered) + f"\n</{tag}>")
        return end

    def item(self, lines, at, match):
        """One item with its continued lines and the blocks below it."""
        width = len(match[1]) + len(match[2]) + 1
        inside, end = [match[3]], at + 1
        while end < len(lines):
            line = lines[end]
            deeper = line.startswith(" " * width)
            if not line.strip():
                if end + 1 >= len(lines) or not lines[end + 1].startswith(" " * width):
                    break
            elif not deeper and (ITEM.match(line) or HEADING.match(line) or FENCE.match(line) or line.startswith("|") or not lines[end - 1].strip()):
                break
            inside.append(line[width:] if deeper else line.strip())
            end += 1
        text = self.blocks(inside)
        single = re.fullmatch(r"<p>((?:(?!<p>).)*)</p>(.*)", text, re.S)
        while end < len(lines) and not lines[end].strip() and end + 1 < len(lines) and ITEM.match(lines[end + 1]):
            end += 1
        return (single[1] + single[2] if single else text), end

    def quote(self, lines, at, out):
        end = at
        while end < len(lines) and lines[end].startswith(">"):
            end += 1
        out.append("<blockquote>" + self.blocks([re.sub(r"^> ?", "", line) for line in lines[at:end]]) + "</blockquote>")
        return end

    def paragraph(self, lines, at, out):
        end = at + 1
        while end < len(lines) and lines[end].strip() and not (
                HEADING.match(lines[end]) or FENCE.match(lines[end]) or ITEM.match(lines[end]) or
                (lines[end].startswith("|") and end + 1 < len(lines) and SEPARATOR.match(lines[end + 1]))):
            end += 1
        out.append(f"<p>{self.spans(' '.join(line.strip() for line in lines[at:end]))}</p>")
        return end
