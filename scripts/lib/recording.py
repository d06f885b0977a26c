# SPDX-License-Identifier: Apache-2.0
"""Recordings of terminals as animated pictures: what was typed and printed, and when. A picture is one SVG file without scripts."""
import fcntl
import html
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

COLUMNS, LINE, WIDTH, MARGIN = 88, 19, 8.43, 14  # WIDTH is that of a character
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()].)|[\r\x07]")
PAUSE = 1.2  # before a command, so that a reader can follow


class Terminal:
    """A shell in a terminal; `lines` are (seconds since the start, text) of all that it shows."""

    def __init__(self, title, start, directory, environment):
        self.title, self.start, self.lines, self.partial = title, start, [], ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.wait(lambda: self.partial == "$ ", "a prompt")

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return
        try:
            text = ESCAPES.sub("", os.read(self.fd, 65536).decode(errors="replace"))
        except OSError:  # the shell has ended
            return
        now = time.monotonic() - self.start
        *whole, rest = (self.partial + text).split("\n")
        for line in whole:
            self.lines.append((now, line))
        self.partial = rest

    def wait(self, condition, what, others=(), seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                sys.exit(f"not within {seconds} s: {what}; the terminal shows {self.lines} {self.partial!r}")
            for terminal in (self, *others):
                terminal.read(0.02)

    def pause(self, seconds=PAUSE, others=()):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for terminal in (self, *others):
                terminal.read(0.02)

    def type(self, command, others=()):
        """Types a command at the prompt, and does not wait for its end."""
        self.wait(lambda: self.partial == "$ ", "a prompt", others)
        os.write(self.fd, command.encode() + b"\n")
        self.wait(lambda: any(line == f"$ {command}" for _, line in self.lines), f"{command} is shown", others)

    def prompt(self, others=()):
        self.wait(lambda: self.partial == "$ ", "a prompt", others)

    def shows(self, text, others=()):
        self.wait(lambda: any(line == text for _, line in self.lines), f"the terminal shows {text}", others)

    def close(self):
        os.kill(self.pid, signal.SIGHUP)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class Stage:
    """A directory with a daemon's settings, in which terminals are opened. The commands look as on any machine."""

    def __init__(self, program):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.path.chmod(0o711)
        (self.path / "bin").mkdir(mode=0o755)
        (self.path / "bin" / "sandglass").symlink_to(pathlib.Path(program).resolve())
        self.socket = self.path / "run" / "s.sock"
        config = self.path / "settings"
        config.write_text(f'{{"state_dir": "{self.path}/state", "listen": ["unix:{self.socket}"], "instance": "recording-{os.getpid()}", '
                          '"pool": {"size": 1}, "shutdown": {"policy": "destroy"}}')
        self.environment = {"PATH": f"{self.path}/bin:{os.environ['PATH']}", "HOME": str(self.path), "PS1": "$ ", "PS2": "", "TERM": "dumb", "LANG": "C.UTF-8",
                            "SANDGLASS_CONFIG": str(config), "SANDGLASS_URL": f"unix:{self.socket}", "BASH_SILENCE_DEPRECATION_WARNING": "1"}
        self.start = time.monotonic()
        self.terminals = []

    def terminal(self, title):
        self.terminals.append(Terminal(title, self.start, self.path, self.environment))
        return self.terminals[-1]

    def ask(self, *arguments):
        return subprocess.run(["sandglass", *arguments], env=self.environment, capture_output=True, text=True).stdout

    def answers(self):
        return subprocess.run(["sandglass", "ls"], env=self.environment, capture_output=True).returncode == 0

    def close(self):
        for terminal in self.terminals:
            terminal.close()
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:  # a daemon that a terminal has started, and which outlives it
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if command[1:2] == [b"serve"] and str(self.path).encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGTERM)
                    deadline = time.monotonic() + 20
                    while entry.exists() and time.monotonic() < deadline:
                        time.sleep(0.05)
            except (OSError, ValueError):
                continue
        self.directory.cleanup()


# What happens in the recordings


def restart(stage):
    """kill -9 of the daemon under a running program."""
    program = stage.terminal("a program in a sandbox")
    daemon = stage.terminal("the daemon")
    daemon.type("sandglass serve 2>log &")
    daemon.wait(stage.answers, "the daemon answers")
    program.pause(others=[daemon])
    program.type("sandglass run -- sh -c 'for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.7; done'", [daemon])
    program.shows("line 3", [daemon])
    daemon.type("kill -9 %1", [program])
    deadline = time.monotonic() + 30
    while not any("Killed" in line for _, line in daemon.lines) and time.monotonic() < deadline:
        daemon.pause(0.3, [program])
        os.write(daemon.fd, b"\n")  # the shell tells at the next prompt behind the end
    daemon.pause(1.5, [program])
    daemon.type("sandglass serve 2>log &", [program])
    program.shows("line 8", [daemon])
    program.prompt([daemon])
    program.pause(others=[daemon])
    return [program, daemon]


EVALUATE = "for i in 1 2 3; do sandglass run -d -- sleep 31337 >>log 2>&1; done\necho $(sandglass ls | wc -l) sessions are open\n"


def scope(stage):
    """A scope that ends by itself, and one that is killed: neither leaves anything."""
    (stage.path / "evaluate").write_text(EVALUATE)
    (stage.path / "evaluate-then-kill-scope").write_text(EVALUATE + "kill -9 $PPID\n")
    terminal = stage.terminal("an evaluation")
    serving = subprocess.Popen(["sandglass", "serve"], env=stage.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    terminal.wait(stage.answers, "the daemon answers")
    terminal.type("cat evaluate")
    terminal.prompt()
    terminal.pause()
    terminal.type("sandglass scope -- sh evaluate")
    terminal.prompt()
    terminal.pause()
    terminal.type("sandglass scope -- sh evaluate-then-kill-scope")
    terminal.prompt()
    terminal.wait(lambda: not stage.ask("ls", "--owner", "*"), "all sessions are gone")
    terminal.wait(lambda: subprocess.run(["pgrep", "-f", "sleep 31337"], stdout=subprocess.DEVNULL).returncode == 1, "their programs are gone")
    terminal.pause()
    terminal.type("sandglass ls --owner '*' | wc -l")
    terminal.prompt()
    terminal.type("pgrep -fc 'sleep 31337'")
    terminal.prompt()
    terminal.pause()
    serving.terminate()
    serving.wait()
    return [terminal]


RECORDINGS = {"restart": (restart, "kill -9 of the daemon: the program goes on, and no line is lost"),
              "scope": (scope, "scope: whatever a command starts is gone with it, also after kill -9")}


# Pictures


def steady(text):
    """A line without what differs from run to run."""
    text = re.sub(r"\b(ses|exe|sbx)_[0-9a-z]{20,}", r"\1_…", text)
    text = re.sub(r"^\[(\d)\] \d+$", r"[\1] 4711", text)
    return re.sub(r"(line \d+: +|sandglass: )\d+ (Killed)", r"\g<1>4711 \2", text)


def lines_of(picture):
    """The lines in a picture, as the terminals have shown them."""
    return [html.unescape(line) for line in re.findall(r"<text[^>]*class=\"[lc][^>]*>(.*?)</text>", picture)]


STYLE = """text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#1f2328}
.b{fill:#f6f8fa;stroke:#d0d7de}.t{font-size:12px;fill:#59636e}.c{fill:#0550ae;font-weight:600}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#0d1117;stroke:#30363d}.t{fill:#9198a1}.c{fill:#79c0ff}}
"""


def picture(terminals, description):
    """All terminals below each other; each line appears when it did, and everything begins again after a while."""
    end = max(when for terminal in terminals for when, _ in terminal.lines)
    first = min(when for terminal in terminals for when, _ in terminal.lines)
    length = end - first + 5
    style, body, top = [STYLE], [], MARGIN
    for terminal in terminals:
        height = LINE * (len(terminal.lines) + 1) + 2 * MARGIN
        body.append(f'<rect class="b" x="1" y="{top}" width="{COLUMNS * WIDTH + 2 * MARGIN:.0f}" height="{height}" rx="8"/>')
        body.append(f'<text class="t" x="{MARGIN}" y="{top + 20}">{html.escape(terminal.title)}</text>')
        for row, (when, text) in enumerate(terminal.lines, 2):
            name = f"k{len(style)}"
            share = 100 * (when - first + 0.5) / length
            style.append(f"@keyframes {name}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,99.9%{{opacity:1}}}}#{name}{{animation:{name} {length:.1f}s infinite}}\n")
            kind = "c" if text.startswith("$ ") else "l"
            body.append(f'<text id="{name}" class="{kind}" x="{MARGIN}" y="{top + LINE * row + 6}">{html.escape(steady(text), quote=False)}</text>')
        top += height + MARGIN // 2
    style.append("@media (prefers-reduced-motion:reduce){text{animation:none!important}}")
    width = COLUMNS * WIDTH + 2 * MARGIN + 2
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {top + MARGIN // 2}" width="{width:.0f}" role="img" aria-label="{html.escape(description)}">\n'
            f"<title>{html.escape(description)}</title>\n<style>\n{''.join(style)}\n</style>\n" + "\n".join(body) + "\n</svg>\n")


def record(program, name):
    act, description = RECORDINGS[name]
    stage = Stage(program)
    try:
        terminals = act(stage)
        for terminal in terminals:
            terminal.lines = [line for line in terminal.lines if line[1].strip() and line[1] != "$ "]
        return picture(terminals, description)
    finally:
        stage.close()


if __name__ == "__main__":
    for name in RECORDINGS:
        (pathlib.Path(sys.argv[2]) / f"{name}.svg").write_text(record(sys.argv[1], name))
