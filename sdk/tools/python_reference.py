# SPDX-License-Identifier: Apache-2.0
"""docs/reference/sdk-python.md: the public classes of the package with their calls, from the source."""
import ast
import pathlib
import re

HEADER = """# Reference of the Python SDK

Written by `scripts/sdk` from `sdk/python`. [How to use it](python-sdk.md) is another page. `AsyncClient`, `AsyncSession` and so on have the same
calls to be awaited, with `async with` and `async for`. Documents such as `types.Session` are dictionaries; their keys are in
`sandglass/types.py` and in the daemon's `/openapi.json`.
"""

MODULES = ["client.py", "session.py", "execution.py", "context.py", "files.py", "storage.py", "approval.py", "scope.py", "models.py", "errors.py"]


def first_paragraphs(node):
    """The docstring, with code blocks as such."""
    lines, code = [], False
    for line in (ast.get_docstring(node) or "").splitlines():
        is_code = line.startswith("    ")
        if is_code and not code:
            lines.append("```python")
        elif code and not is_code and line:
            lines += ["```", ""]
        code = is_code or (code and not line)
        lines.append(line[4:] if is_code else line)
    if code:
        lines.append("```")
    return "\n".join(lines).strip()


def signature(function):
    arguments = ast.unparse(function.args)
    for first in ("self: R, ", "self: R", "self, ", "self", "cls, "):
        if arguments.startswith(first):
            arguments = arguments[len(first):]
            break
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return re.sub(r"(?<!=)'([^']*)'", r"\1", f"{function.name}({arguments}){returns}")


def is_property(function):
    return any(isinstance(mark, ast.Name) and mark.id == "property" for mark in function.decorator_list)


def describe(function):
    text = " ".join(first_paragraphs(function).split("```")[0].split())
    name = f"`{function.name}`" if is_property(function) else f"`{signature(function)}`"
    return f"- {name}  \n  {text}" if text else f"- {name}"


def page_of(tree):
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        bases = [ast.unparse(base) for base in node.bases]
        yield f"## {node.name}" + (f" ({', '.join(bases)})" if bases and bases != ["NamedTuple"] else "")
        yield first_paragraphs(node)
        calls = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        fields = [f"`{ast.unparse(item.target)}: {ast.unparse(item.annotation)}`" for item in node.body if isinstance(item, ast.AnnAssign)]
        if fields and "NamedTuple" in bases:
            yield "Fields: " + ", ".join(fields).replace("'", "").replace('"', "") + "."
        made = [call for call in calls if call.name == "__init__" and node.name == "Client"]
        public = made + [call for call in calls if not call.name.startswith("_")]
        if public:
            yield "\n".join(describe(call) for call in public)


def generate(package):
    """The page."""
    parts = [HEADER]
    for name in MODULES:
        parts += page_of(ast.parse((pathlib.Path(package) / name).read_text()))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
