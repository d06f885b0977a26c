# SPDX-License-Identifier: Apache-2.0
"""What notebooks add to Python: lines of shell, magics, and IPython.display where IPython is not installed.

The driver compiles this text when code needs it the first time: most contexts never do. Names that code may see are those of
IPython, so that code written for a notebook runs as it is.
"""
import os
import re
import subprocess
import sys


class UsageError(Exception):
    """A magic that is unknown or called in a wrong way."""


# --- from a notebook's text to Python: one line stays one line

def is_open(text):
    """Whether the text ends within brackets, a string or a line that goes on."""
    import io
    import tokenize
    if text.endswith("\\\n"):
        return True
    try:
        for _ in tokenize.generate_tokens(io.StringIO(text).readline):
            pass
    except tokenize.TokenError as problem:
        return "EOF" in str(problem)
    except SyntaxError:
        pass
    return False


def call(name, *texts):
    return f"get_ipython().{name}({', '.join(map(repr, texts))})"


def translate_line(line):
    """One line as Python; the line itself where it is no idiom of notebooks."""
    indent, text = re.match(r"(\s*)(.*)", line, re.S).groups()
    assign = re.match(r"([A-Za-z_][\w.\[\]'\", ]*=\s*)([!%])(.*)", text)
    if assign:
        target, kind, text = assign.groups()
        return indent + target + (call("getoutput", text) if kind == "!" else magic_call(text))
    if text.startswith("!!"):
        return indent + call("getoutput", text[2:])
    if text.startswith("!"):
        return indent + call("system", text[1:])
    if re.match(r"%[A-Za-z_]", text):
        return indent + magic_call(text[1:])
    asked = re.fullmatch(r"\?{0,2}([A-Za-z_][\w.]*)\?{0,2}", text)
    if asked and "?" in text:
        return indent + call("run_line_magic", "pinfo", asked[1])
    return line


def magic_call(text):
    name, _, rest = text.partition(" ")
    return call("run_line_magic", name, rest.strip())


def translate(code):
    """Python for a cell of a notebook."""
    import textwrap
    code = textwrap.dedent(code)
    head, _, body = code.lstrip("\n").partition("\n")
    if re.match(r"%%[A-Za-z_]", head):
        name, _, rest = head[2:].partition(" ")
        return call("run_cell_magic", name, rest.strip(), body)
    done = ""
    for line in code.splitlines(keepends=True):
        text = line.rstrip("\r\n")
        other = translate_line(text)
        if other != text and is_open(done):
            other = text
        done += other + line[len(text):]
    return done


# --- running them

def shell_program():
    return next((path for path in ("/bin/bash", "/bin/sh") if os.path.exists(path)), "sh")


class Shell:
    """What get_ipython() gives: the part of IPython's shell that cells use."""
    config = {}
    ignored = ("matplotlib", "config", "precision", "colors", "xmode")
    programs = ("ls", "cat", "cp", "mkdir", "mv", "rm", "rmdir")

    def __init__(self, driver, namespace):
        self.driver = driver
        self.user_ns = namespace
        self.before = None

    def expand(self, text):
        """$name and {expression} of the namespace, as IPython does; what is neither stays as it is."""
        def evaluate(found):
            try:
                return str(eval(found[1] or found[2], self.user_ns))
            except Exception:
                return found[0]

        return re.sub(r"(?<![\$\\])\$([A-Za-z_]\w*)|(?<!\$)\{([^{}]+)\}", evaluate, text)

    def run_program(self, arguments, **options):
        self.driver.flush()
        done = subprocess.run(arguments, **options)
        self.user_ns["_exit_code"] = done.returncode
        self.driver.find_new_packages()
        return done

    def system(self, command):
        self.run_program([shell_program(), "-c", self.expand(command)])

    def getoutput(self, command):
        done = self.run_program([shell_program(), "-c", self.expand(command)], stdout=subprocess.PIPE, text=True, errors="replace")
        return done.stdout.splitlines()

    def run_line_magic(self, name, line, *_):
        if name in self.ignored:
            return None
        if name in self.programs:
            return self.system(f"{name} {line}")
        made = getattr(self, "magic_" + name, None)
        if made is None:
            self.refuse("%" + name)
        return made(self.expand(line) if name not in ("time", "timeit") else line)

    def run_cell_magic(self, name, line, cell):
        made = getattr(self, "cell_" + name, None)
        if made is None:
            self.refuse("%%" + name)
        return made(line, cell)

    magic = run_line_magic

    def refuse(self, name):
        lines = [f"%{other}" for other in self.ignored[:1] + self.programs[:1]]
        for method in sorted(dir(type(self))):
            kind, _, other = method.partition("_")
            lines += [f"%{other}"] if kind == "magic" and other else [f"%%{other}"] if kind == "cell" else []
        raise UsageError(f"{name} is not available in this interpreter. There are {', '.join(lines)}, and !COMMAND runs a shell command.")

    def magic_pip(self, line):
        import shlex
        self.run_program([sys.executable, "-m", "pip", *shlex.split(line)])

    def magic_cd(self, line):
        target = self.before if line == "-" else os.path.expanduser(line.strip("'\"") or "~")
        if target is None:
            raise UsageError("%cd -: there is no directory of before")
        now = os.getcwd()
        os.chdir(target)
        self.before = now
        print(os.getcwd())

    def magic_pwd(self, _):
        return os.getcwd()

    def magic_env(self, line):
        name, sign, value = line.partition("=") if "=" in line else line.partition(" ")
        name, value = name.strip(), value.strip()
        if sign:
            os.environ[name] = value
            print(f"env: {name}={value}")
            return None
        return os.environ.get(name) if name else dict(os.environ)

    magic_set_env = magic_env

    def magic_who(self, _):
        hidden = ("In", "Out", "exit", "quit")
        print("  ".join(sorted(name for name in self.user_ns if name[:1] != "_" and name not in hidden)) or "Interactive namespace is empty.")

    def magic_pinfo(self, name):
        try:
            value = eval(name, self.user_ns)
        except Exception:
            raise UsageError(f"{name} is not defined") from None
        import pydoc
        print(pydoc.plain(pydoc.render_doc(value)))

    def magic_run(self, line):
        import runpy
        import shlex
        path, *arguments = shlex.split(line) or [""]
        before, sys.argv = sys.argv, [path, *arguments]
        try:
            self.user_ns.update({name: value for name, value in runpy.run_path(path, run_name="__main__").items() if name[:2] != "__"})
        finally:
            sys.argv = before

    def magic_time(self, line):
        return self.cell_time("", line)

    def cell_time(self, line, cell):
        import time
        wall, used = time.perf_counter(), time.process_time()
        value = self.driver.evaluate_cell(f"{line}\n{cell}" if line else cell, self.user_ns)
        print(f"CPU times: {(time.process_time() - used) * 1000:.3g} ms\nWall time: {(time.perf_counter() - wall) * 1000:.3g} ms")
        return value

    def magic_timeit(self, line):
        self.cell_timeit(line, "")

    def cell_timeit(self, line, cell):
        import timeit
        setup, code = (line or "pass", cell) if cell else ("pass", line)
        code = re.sub(r"^(-[nrtcpqov]\s*\d*\s+)+", "", code)
        timer = timeit.Timer(code, setup, globals=self.user_ns)
        count, _ = timer.autorange()
        taken = [each / count for each in timer.repeat(5, count)]
        mean = sum(taken) / len(taken)
        scale, unit = next(((scale, unit) for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if mean * scale >= 1), (1e9, "ns"))
        print(f"{mean * scale:.3g} {unit} per loop (mean of {len(taken)} runs, {count} loops each)")

    def cell_bash(self, _, cell):
        done = self.run_program([shell_program(), "-c", cell])
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, "%%bash")

    cell_sh = cell_bash

    def cell_writefile(self, line, cell):
        append, path = re.fullmatch(r"(-a\s+)?(.*)", line.strip()).groups()
        path = os.path.expanduser(path.strip("'\""))
        if not path:
            raise UsageError("%%writefile needs a file: %%writefile [-a] FILE")
        print(f"{'Appending to' if append else 'Overwriting' if os.path.exists(path) else 'Writing'} {path}")
        with open(path, "a" if append else "w") as file:
            file.write(cell)

    def cell_html(self, _, cell):
        self.driver.display({"text/html": cell, "text/plain": cell}, raw=True)

    def cell_markdown(self, _, cell):
        self.driver.display({"text/markdown": cell, "text/plain": cell}, raw=True)


# --- IPython.display

class DisplayObject:
    """Something to show: a text, bytes, a file's content, or where it is on the web."""
    kind = "text/plain"

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                self.data = file.read()

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def content(self):
        return self.data.decode("utf-8", "replace") if isinstance(self.data, bytes) else str(self.data)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.kind: self.content(), "text/plain": repr(self)}


def text_object(name, kind):
    return type(name, (DisplayObject,), {"kind": kind, "__doc__": f"Shows a text as {kind}."})


class Pretty(DisplayObject):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": self.content()}


class JSON(DisplayObject):
    def _repr_mimebundle_(self, include=None, exclude=None):
        import json
        value = json.loads(self.data) if isinstance(self.data, (str, bytes)) else self.data
        return {"application/json": value, "text/plain": repr(value)}


class Math(DisplayObject):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/latex": "$\\displaystyle " + self.content().strip("$") + "$", "text/plain": repr(self)}


class IFrame:
    def __init__(self, src, width, height, **_):
        self.src, self.width, self.height = src, width, height

    def _repr_html_(self):
        return f'<iframe width="{self.width}" height="{self.height}" src="{self.src}" frameborder="0" allowfullscreen></iframe>'


class Image(DisplayObject):
    """An image from bytes, a file, or an address."""
    kinds = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, **_):
        if isinstance(data, str) and data.startswith(("http://", "https://")):
            data, url = None, data
        elif isinstance(data, (str, os.PathLike)):
            data, filename = None, os.fspath(data)
        super().__init__(data, url, filename)
        self.format, self.width, self.height = format, width, height

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            size = "".join(f' {name}="{value}"' for name, value in (("width", self.width), ("height", self.height)) if value)
            return {"text/html": f'<img src="{self.url}"{size}/>', "text/plain": repr(self)}
        kind = next((kind for start, kind in self.kinds if bytes(self.data).startswith(start)), f"image/{self.format or 'png'}")
        return {kind: self.driver.encode(kind, self.data), "text/plain": repr(self)}


class DisplayHandle:
    """Shows again what changed: an answer is a record, so that nothing of it is taken back."""

    def __init__(self, display_id=None):
        self.display_id = display_id or os.urandom(8).hex()

    def display(self, value, **options):
        Image.driver.display(value, **options)

    update = display


def display(*values, display_id=None, raw=False, **options):
    Image.driver.display(*values, raw=raw)
    return DisplayHandle(None if display_id is True else display_id) if display_id else None


def update_display(value, display_id=None, **options):
    Image.driver.display(value)


def clear_output(wait=False):
    """Does nothing: what a run has shown stays in its answer."""


def publish_display_data(data, metadata=None, **_):
    Image.driver.display(data, raw=True)


def make_modules(driver):
    """Stand-ins for IPython and IPython.display, by name."""
    import types
    Image.driver = driver
    package, core, shown = (types.ModuleType(name) for name in ("IPython", "IPython.core", "IPython.display"))
    for name, kind in (("HTML", "text/html"), ("Markdown", "text/markdown"), ("Latex", "text/latex"), ("SVG", "image/svg+xml"),
                       ("Javascript", "application/javascript"), ("Code", "text/plain")):
        setattr(shown, name, text_object(name, kind))
    for value in (DisplayObject, Pretty, JSON, Math, IFrame, Image, DisplayHandle, display, update_display, clear_output, publish_display_data):
        setattr(shown, value.__name__, value)
    shown.__doc__ = "The part of IPython.display that needs no IPython."
    package.__path__, core.__path__ = [], []
    package.version_info, package.__version__ = (8, 0, 0), "8.0.0"
    package.get_ipython = lambda: None  # libraries that ask want a whole IPython
    package.display, package.core, core.display = shown, core, shown
    return {"IPython": package, "IPython.core": core, "IPython.display": shown, "IPython.core.display": shown}


def take_over(module):
    """Displays of a real IPython, which has no shell here and would print them, go into the answer."""
    module.display, module.update_display, module.clear_output, module.publish_display_data = display, update_display, clear_output, publish_display_data


def show_saved(module):
    """A picture of Pillow that is saved to a file is shown, too."""
    save = module.Image.save

    def save_and_show(image, fp, format=None, **options):
        save(image, fp, format, **options)
        if isinstance(fp, (str, os.PathLike)):
            Image.driver.display(image)

    save_and_show.__doc__ = save.__doc__
    module.Image.save = save_and_show
