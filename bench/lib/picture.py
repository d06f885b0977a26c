"""The picture for the README: how long one waits, Sandglass beside the others, as bars on a logarithmic scale. It follows the
reader's light or dark theme by itself and uses no font but the reader's."""
import html
import math

from . import table

PANELS = [
    ("cold", "A new sandbox, /bin/true in it, and gone", ["sandglass", "bwrap", "crun", "runc", "podman", "docker"]),
    ("warm", "A sandbox that was ready, to its first result", ["sandglass"]),
    ("exec_true", "/bin/true in a sandbox that lives", ["sandglass", "bwrap", "crun", "runc", "podman", "docker"]),
    ("destroy", "Until everything of it is dead", ["sandglass", "bwrap", "crun", "runc", "podman", "docker"]),
    ("python_stdlib", "Python with json, re and asyncio", ["sandglass", "exec"]),
]
NAMES = {"sandglass": "Sandglass", "bwrap": "bubblewrap", "docker": "Docker", "podman": "Podman", "plain": "no sandbox",
         "exec": "new process"}
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 130, 90, 16, 6, 34

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .bar { fill: #afb8c1; }
  .ours { fill: #d9822b; }
  .floor { stroke: #59636e; stroke-dasharray: 3 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .bar { fill: #4b535d; }
    .ours { fill: #e8a04c; }
    .floor { stroke: #9198a1; }
  }
"""


def bars_of(rows, name, subjects):
    cells = [(subject, rows.get(name, {}).get(subject)) for subject in subjects]
    return [(subject, cell["p50"]) for subject, cell in cells if cell and "error" not in cell]


class Scale:
    """Microseconds to pixels."""

    def __init__(self, least, most):
        self.low = math.log10(least)
        self.step = (WIDTH - LEFT - RIGHT) / (math.log10(most) - self.low)

    def width(self, value):
        return max(2.0, (math.log10(value) - self.low) * self.step)


def panel(top, title, bars, scale, floor):
    out = [f'<text class="title" x="10" y="{top + 20}">{html.escape(title)}</text>']
    at = top + HEAD
    for subject, value in bars:
        kind = "bar ours" if subject == "sandglass" else "bar"
        width = scale.width(value)
        out.append(f'<text x="{LEFT - 10}" y="{at + 13}" text-anchor="end">{NAMES.get(subject, subject)}</text>')
        out.append(f'<rect class="{kind}" x="{LEFT}" y="{at}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        out.append(f'<text class="small" x="{LEFT + width + 6:.1f}" y="{at + 12}">{table.human(value, "us")}</text>')
        at += BAR + GAP
    x = LEFT + scale.width(floor)
    out.append(f'<line class="floor" x1="{x:.1f}" x2="{x:.1f}" y1="{top + HEAD - 4}" y2="{at - 2}"/>')
    return out, at


def draw(results):
    """An SVG document."""
    rows = results["rows"]
    floor = rows["floor"]["plain"]["p50"]
    panels = [(title, bars_of(rows, name, subjects)) for name, title, subjects in PANELS]
    panels = [(title, bars) for title, bars in panels if any(subject == "sandglass" for subject, _ in bars)]
    values = [floor] + [value for _, bars in panels for _, value in bars]
    scale = Scale(min(values) / 2, max(values))
    body, top = [], 6
    for title, bars in panels:
        lines, top = panel(top, title, bars, scale, floor)
        body += lines
        top += 8
    machine = results["machine"]
    body.append(f'<text class="small" x="10" y="{top + 12}">Medians of one run on {machine["cpus"]} cores, logarithmic scale; the dashed line is '
                f'posix_spawn and wait of /bin/true without any sandbox ({table.human(floor, "us")}).</text>')
    height = top + 24
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
            f'aria-label="How long one waits, Sandglass beside others">\n<style>{STYLE}</style>\n' + "\n".join(body) + "\n</svg>\n")
