# SPDX-License-Identifier: Apache-2.0
"""The Python of a context: runs code after code in one namespace and tells what came of it.

_sandglass_notebook is set above: the text of notebook.py.

Requests come on the original stdin, each ending with a NUL: a line "TOKEN NUMBER", then the code. What the code
prints goes where it always goes. Messages go between it, into the original stdout, in frames of at most PIPE_BUF
bytes, which the kernel does not tear apart; the end of a run is marked in the original stderr too.
"""
import builtins
import os
import signal
import sys


class Driver:
    frame_bytes = 4000

    def __init__(self):
        self.requests = os.dup(0)
        self.messages = os.dup(1)
        self.marks = os.dup(2)
        self.pid = os.getpid()
        self.pending = b""
        self.token = ""
        self.number = 0
        self.loop = None
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    # --- frames

    def send(self, message, descriptor=None):
        import json
        data = json.dumps(message, ensure_ascii=True, default=str, skipkeys=True).encode()
        descriptor = self.messages if descriptor is None else descriptor
        for at in range(0, len(data), self.frame_bytes):
            piece = data[at:at + self.frame_bytes]
            kind = "m" if at + self.frame_bytes >= len(data) else "p"
            os.write(descriptor, b"\x1e%s%s%04x\n" % (self.token.encode(), kind.encode(), len(piece)) + piece)

    def tell(self, message):
        """Into both streams: where a run begins and ends."""
        self.send(message)
        self.send(message, self.marks)

    def receive(self):
        while b"\0" not in self.pending:
            data = os.read(self.requests, 65536)
            if not data:
                return None
            self.pending += data
        request, _, self.pending = self.pending.partition(b"\0")
        head, _, code = request.partition(b"\n")
        token, number = head.decode().split()
        self.token, self.number = token, int(number)
        return code.decode("utf-8", "surrogateescape")

    # --- values

    representations = (
        ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
        ("image/svg+xml", "_repr_svg_"), ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"),
        ("application/pdf", "_repr_pdf_"), ("application/json", "_repr_json_"), ("application/javascript", "_repr_javascript_"),
    )

    def encode(self, kind, value):
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
            value = value[0]
        if isinstance(value, (bytes, bytearray)):
            import base64
            return base64.b64encode(value).decode("ascii")
        return value

    def bundle(self, value):
        data = {}
        if not isinstance(value, type):
            self.collect(value, data)
        if "text/plain" not in data:
            data["text/plain"] = self.plain(value)
        self.collect_table(value, data)
        if "application/json" not in data and type(value) in (dict, list):
            try:
                import json
                json.dumps(value, allow_nan=False)
                data["application/json"] = value
            except (TypeError, ValueError, RecursionError):
                pass
        return data

    def collect(self, value, data):
        try:
            made = getattr(value, "_repr_mimebundle_", None)
            made = made(include=None, exclude=None) if callable(made) else None
            made = made[0] if isinstance(made, tuple) else made
            for kind, content in (made or {}).items():
                data[str(kind)] = self.encode(kind, content)
        except Exception:
            pass
        for kind, name in self.representations:
            try:
                method = getattr(value, name, None)
                content = method() if kind not in data and callable(method) else None
                if content is not None:
                    data[kind] = self.encode(kind, content)
            except Exception:
                pass

    def collect_table(self, value, data):
        """The columns of a pandas table, for clients that draw their own."""
        pandas = sys.modules.get("pandas")
        try:
            if pandas is not None and isinstance(value, pandas.DataFrame):
                data["e2b/data"] = {str(name): [cell.isoformat() if hasattr(cell, "isoformat") else cell for cell in column]
                                    for name, column in value.to_dict(orient="list").items()}
        except Exception:
            pass

    def plain(self, value):
        try:
            return repr(value)
        except Exception as problem:
            return f"<{type(value).__name__} whose repr() failed: {type(problem).__name__}>"

    def display(self, *values, raw=False, **options):
        """Shows values in the answer, as MIME bundles; with raw=True they are bundles already."""
        self.flush()
        for value in values:
            self.send({"type": "display", "data": value if raw and isinstance(value, dict) else self.bundle(value)})

    def show_figures(self):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        import io
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            image = io.BytesIO()
            figure.savefig(image, format="png", bbox_inches="tight")
            shown = {"image/png": self.encode("image/png", image.getvalue()), "text/plain": self.plain(figure)}
            try:
                from e2b_charts import chart_figure_to_dict
                shown["e2b/chart"] = chart_figure_to_dict(figure)
            except Exception:  # the package is not there, or does not know this kind
                pass
            self.display(shown, raw=True)
        pyplot.close("all")

    # --- notebooks and packages

    def notebook(self):
        """The module with what notebooks add, made when it is needed."""
        module = sys.modules.get("_sandglass_notebook")
        if module is None:
            module = sys.modules["_sandglass_notebook"] = type(sys)("_sandglass_notebook")
            exec(compile(_sandglass_notebook, "<notebook>", "exec"), module.__dict__)
            module.modules = module.make_modules(self)
            module.shell = module.Shell(self, sys.modules["__main__"].__dict__)
        return module

    def get_ipython(self):
        return self.notebook().shell

    def add_user_site(self):
        """Makes packages of the user importable when their directory has appeared meanwhile; whether it has."""
        site = sys.modules.get("site")
        place = site and site.ENABLE_USER_SITE and site.USER_SITE
        if not place or place in sys.path or not os.path.isdir(place):
            return False
        known = set(sys.path)
        site.addsitedir(place)
        added = [path for path in sys.path if path not in known]
        rest = [path for path in sys.path if path in known]
        at = min((rest.index(path) for path in site.getsitepackages() if path in rest), default=len(rest))
        sys.path[:] = rest[:at] + added + rest[at:]  # as in a new interpreter: before those of the system
        return True

    def find_new_packages(self):
        """Programs may have installed some: imports look again."""
        import importlib
        importlib.invalidate_caches()
        self.add_user_site()

    def find_spec(self, name, path=None, target=None):
        """The last finder: modules that no other finder knows."""
        import importlib.machinery
        if path is None and self.add_user_site():
            spec = importlib.machinery.PathFinder.find_spec(name)
            if spec:
                return spec
        if name.partition(".")[0] == "IPython" and name in self.notebook().modules:
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def find_displays(self, name, path=None, target=None):
        """The first finder: displays of a real IPython go into the answer, too, and pictures that are saved where E2B's clients expect that."""
        if name != "IPython.core.display_functions" and not (name == "PIL.Image" and "E2B_SANDBOX" in os.environ):
            return None
        import importlib.machinery
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec:
            run = spec.loader.exec_module
            change = self.notebook().show_saved if name == "PIL.Image" else self.notebook().take_over
            spec.loader.exec_module = lambda module: (run(module), change(module))
        return spec

    def create_module(self, spec):
        return self.notebook().modules[spec.name]

    def exec_module(self, module):
        pass

    # --- running

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    def parse(self, code, name):
        """Code as it is; if that is no Python, as notebooks take it: indented as a whole, with shell lines and magics."""
        import ast
        try:
            return ast.parse(code, name)
        except SyntaxError:
            plain = self.notebook().translate(code)
            if plain == code:
                raise
        return ast.parse(plain, name)

    def compile(self, code):
        import ast
        name = f"<cell {self.number}>"
        lines = code.splitlines(keepends=True)
        import linecache
        linecache.cache[name] = (len(code), None, lines, name)
        tree = self.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        body = compile(tree, name, "exec", flags) if tree.body else None
        return body, compile(last, name, "eval", flags) if last else None

    def evaluate(self, code, namespace):
        value = eval(code, namespace)
        if code.co_flags & 0x80:  # CO_COROUTINE: it awaits at the top level
            import asyncio
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self.loop)
            value = self.loop.run_until_complete(value)
        return value

    def evaluate_cell(self, code, namespace):
        """Runs code; the value of its last expression."""
        body, last = self.compile(code)
        if body:
            self.evaluate(body, namespace)
        return self.evaluate(last, namespace) if last else None

    def execute(self, code, namespace):
        value = self.evaluate_cell(code, namespace)
        self.flush()
        self.show_figures()
        if value is not None:
            builtins._ = value
            self.send({"type": "result", "data": self.bundle(value)})

    def own_frames(self, problem):
        """The traceback of the code, without frames of this file around it and behind it."""
        first = problem.__traceback__
        while first and first.tb_frame.f_code.co_filename == __file__:
            first = first.tb_next
        last = first
        while last and last.tb_next:
            if last.tb_next.tb_frame.f_code is Driver.interrupt.__code__:
                last.tb_next = None
            last = last.tb_next
        return first

    def describe(self, problem):
        import traceback
        place = self.own_frames(problem)
        is_unread = isinstance(problem, SyntaxError) and problem.filename == f"<cell {self.number}>"
        place = None if is_unread else place
        frames = [{"file": frame.filename, "line": frame.lineno, "function": frame.name, "text": frame.line}
                  for frame in traceback.extract_tb(place)]
        if is_unread:
            frames = [{"file": problem.filename, "line": problem.lineno, "function": None, "text": problem.text}]
        try:
            value = str(problem)
            text = f"{type(problem).__name__}: {value}\n" if type(problem).__module__ == "_sandglass_notebook" else "".join(traceback.format_exception(type(problem), problem, place))
        except Exception:
            value = text = "<an exception that cannot be shown>"
        return {"type": "error", "name": type(problem).__name__, "value": value, "frames": frames[-100:], "traceback": text}

    def run(self, code, namespace):
        state = "ok"
        self.tell({"type": "begin"})
        self.listen_for_interrupts()
        try:
            self.execute(code, namespace)
        except BaseException as problem:
            self.leave_if_forked(problem)
            state = "error"
            self.flush()
            self.send(self.describe(problem))
            sys.last_value = problem
        self.leave_if_forked(None)
        self.listen_for_interrupts()
        self.flush()
        self.tell({"type": "done", "state": state})

    def leave_if_forked(self, problem):
        """A child that the code has forked and that comes back here is not the driver."""
        if os.getpid() == self.pid:
            return
        code = 1 if problem else 0
        if isinstance(problem, SystemExit):
            code = problem.code if isinstance(problem.code, int) else 0 if problem.code is None else 1
        elif problem:
            import traceback
            traceback.print_exception(problem)
        self.flush()
        os._exit(code & 255)

    def buffer_lines(self):
        """Output is shown as it comes, in order with what children print: by lines, where PYTHONUNBUFFERED would write each piece."""
        import io
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            old = getattr(sys, name)
            new = io.TextIOWrapper(io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False)), old.encoding, old.errors, "\n", True)
            new.buffer.raw.name, new.mode = f"<{name}>", "w"
            setattr(sys, name, new)
            setattr(sys, f"__{name}__", new)

    # --- interrupts

    def interrupt(self, number, frame):
        """Ends the code of a run and nothing else. A second interrupt may come while the first one is dealt with: the frames on
        the stack tell whether the code still runs, where a handler that is set and taken back has moments in between."""
        while frame is not None:
            if frame.f_code is Driver.execute.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    def listen_for_interrupts(self):
        """Code may have set a handler of its own."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def serve(self):
        import types
        main = types.ModuleType("__main__")
        main.__builtins__ = builtins
        sys.modules["__main__"] = main
        sys.argv = [""]
        sys.path[0] = ""
        builtins.display = self.display
        builtins.get_ipython = self.get_ipython
        sys.meta_path[:] = [types.SimpleNamespace(find_spec=self.find_displays), *sys.meta_path, self]
        self.buffer_lines()
        signal.default_int_handler = self.interrupt  # asyncio asks for it by name
        self.listen_for_interrupts()
        while (code := self.receive()) is not None:
            self.run(code, main.__dict__)
        self.flush()


os.environ.setdefault("MPLBACKEND", "Agg")
try:
    os.unlink(__file__)
except OSError:
    pass
Driver().serve()
