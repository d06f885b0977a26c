# SPDX-License-Identifier: Apache-2.0
"""The picture for the README: how long one waits, Sandglass beside the others, in multiples of a plain process of the same
moment, as bars on a logarithmic scale. It follows the reader's light or dark theme and uses the reader's font."""
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
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 130, 120, 16, 6, 34

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #6e7781; }
  .title { font-weight: 600; }
  .small { font-size: 11px; }
  .bar { fill: #afb8c1; }
  .ours { fill: #d9822b; }
  .floor { stroke: #59636e; stroke-dasharray: 3 3; }
  @media (prefers-color-scheme: light) { text { fill: #1f2328; } .small { fill: #59636e; } }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .bar { fill: #4b535d; }
    .ours { fill: #e8a04c; }
    .floor { stroke: #9198a1; }
  }
"""


SLOW = ("crun", "runc", "podman", "docker")  # they have a floor of their own: see measure.py


def bars_of(rows, name, subjects):
    """[(subject, microseconds, multiple of the floor)]"""
    bars = []
    for subject in subjects:
        cell = rows.get(name, {}).get(subject)
        floor = rows.get("floor_containers" if subject in SLOW else "floor", rows["floor"])["plain"]["p50"]
        if cell and "error" not in cell:
            bars.append((subject, cell["p50"], cell["p50"] / floor))
    return bars


class Scale:
    """Multiples to pixels."""

    def __init__(self, least, most):
        self.low = math.log10(least)
        self.step = (WIDTH - LEFT - RIGHT) / (math.log10(most) - self.low)

    def width(self, value):
        return max(2.0, (math.log10(value) - self.low) * self.step)


def panel(top, title, bars, scale):
    """The elements, and where the next one begins."""
    x = LEFT + scale.width(1)
    at = top + HEAD
    texts = [f'<text class="title" x="10" y="{top + 20}">{html.escape(title)}</text>']
    shapes = []
    for subject, value, multiple in bars:
        kind = "bar ours" if subject == "sandglass" else "bar"
        width = scale.width(multiple)
        told = f"{multiple:.1f} ×" if multiple < 10 else f"{multiple:,.0f} ×"
        shapes.append(f'<rect class="{kind}" x="{LEFT}" y="{at}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        texts.append(f'<text x="{LEFT - 10}" y="{at + 13}" text-anchor="end">{NAMES.get(subject, subject)}</text>')
        texts.append(f'<text class="small" x="{max(LEFT + width, x if width > 0.8 * (x - LEFT) else 0) + 6:.1f}" y="{at + 12}">'
                     f'{told}, {table.human(value, "us")}</text>')
        at += BAR + GAP
    shapes.append(f'<line class="floor" x1="{x:.1f}" x2="{x:.1f}" y1="{top + HEAD - 4}" y2="{at - 2}"/>')
    return shapes + texts, at


def draw(results):
    """An SVG document."""
    rows = results["rows"]
    floor = rows["floor"]["plain"]["p50"]
    panels = [(title, bars_of(rows, name, subjects)) for name, title, subjects in PANELS]
    panels = [(title, bars) for title, bars in panels if any(bar[0] == "sandglass" for bar in bars)]
    values = [1.0] + [multiple for _, bars in panels for _, _, multiple in bars]
    scale = Scale(min(values) / 2, max(values))
    body, top = [], 6
    for title, bars in panels:
        lines, top = panel(top, title, bars, scale)
        body += lines
        top += 8
    machine = results["machine"]
    body.append(f'<text class="small" x="10" y="{top + 12}">Medians on {machine["cpus"]} cores, logarithmic scale, as multiples of the dashed line: '
                f'posix_spawn and wait of /bin/true, no sandbox ({table.human(floor, "us")}).</text>')
    height = top + 24
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
            f'aria-label="How long one waits, Sandglass beside others">\n<style>{STYLE}</style>\n' + "\n".join(body) + "\n</svg>\n")
