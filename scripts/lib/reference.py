# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/reference that are written from the program: commands, routes, settings, metrics.

Each page is a function of what the program prints, so that a test can compare it with the file in the tree.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOTE = "<!-- Written by scripts/docs. Change the program, not this file. -->\n\n"


def output_of(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def cell(text):
    """A text as one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


# Commands


def listed_commands(text):
    """(name, summary) of each row below "Commands:"."""
    section = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
    return re.findall(r"^  (\S+) +(.*)$", section[1], re.M) if section else []


def own_part(text):
    """A help without the options that all commands have."""
    return re.sub(r"\n\nCommon options:\n.*", "", text, flags=re.S).strip()


def commands_page(program):
    overview = output_of(program, "--help")
    rows, sections = [], []
    for name, summary in listed_commands(overview):
        text = output_of(program, "help", name)
        rows.append(f"| [`{name}`](#{name}) | {cell(summary)} |")
        sections.append(f"## {name}\n\n```text\n{own_part(text)}\n```\n")
        for inner, _ in listed_commands(text):
            inside = output_of(program, "help", name, inner)
            sections.append(f"### {name} {inner}\n\n```text\n{own_part(inside)}\n```\n")
    common = re.search(r"^Common options:\n(.*?)\n\n", overview, re.M | re.S)[1]
    return (f"# Commands\n\n{NOTE}`sandglass COMMAND [OPTIONS]`. `sandglass help COMMAND` prints the same text in a terminal.\n"
            "[The command line](cli.md) describes output, exit codes, terminals and signals.\n\n"
            "| command | what it does |\n| --- | --- |\n" + "\n".join(rows) +
            f"\n\n## Options of all commands\n\n```text\n{common}\n```\n\n" + "\n".join(sections))


# Routes


def type_of(schema):
    """A schema in a few words; names of objects are links into the list of objects."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value) if value is None else value}`" for value in schema["enum"])
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_of(one) for one in schema[key]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return kind


def fields_table(schema):
    required = set(schema.get("required", []))
    rows = [f"| `{name}` | {type_of(field)} | {'yes' if name in required else ''} | {cell(field.get('description', ''))} |"
            for name, field in schema.get("properties", {}).items()]
    return "| field | type | always | |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n" if rows else ""


def answer_of(document, status, response):
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    content = response.get("content", {})
    schema = content.get("application/json", {}).get("schema")
    kind = type_of(schema) if schema else ", ".join(f"`{name}`" for name in content)
    return f"| {status} | {kind} | {cell(response.get('description', ''))} |"


def operation_text(document, method, path, operation):
    lines = [f"### {method.upper()} {path}\n", f"{operation.get('summary', '')}.\n" if operation.get("summary") else ""]
    parameters = operation.get("parameters", [])
    if parameters:
        lines.append("| parameter | in | type | |\n| --- | --- | --- | --- |")
        lines += [f"| `{one['name']}` | {one['in']} | {type_of(one.get('schema', {}))} | {cell(one.get('description', ''))} |" for one in parameters]
        lines.append("")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content.get("schema", {})
        table = fields_table(schema).replace("| always |", "| needed |", 1)
        lines.append(f"Body, `{kind}`{':' if table else ''} {type_of(schema) if '$ref' in schema else ''}".rstrip() + ("\n" if table else ".\n"))
        lines.append(table)
    own = [(status, one) for status, one in operation["responses"].items() if "$ref" not in one]
    lines.append("| answer | type | |\n| --- | --- | --- |")
    lines += [answer_of(document, status, one) for status, one in own]
    return "\n".join(lines) + "\n"


def routes_page(document):
    by_tag = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append(operation_text(document, method, path, operation))
    parts = [f"# Routes\n\n{NOTE}The daemon serves the same list as an OpenAPI document at `/openapi.json`. [The HTTP API](http-api.md) explains what the routes mean.\n\n"
             "Every route can also answer with these:\n\n| answer | type | |\n| --- | --- | --- |\n"]
    common = {"400": "BadRequest", "401": "Unauthorized", "403": "Forbidden", "429": "TooMany", "503": "Unavailable", "any other": "Failure"}
    parts.append("\n".join(answer_of(document, status, document["components"]["responses"][name]) for status, name in common.items()) + "\n\n")
    for tag in document["tags"]:
        if by_tag[tag["name"]]:
            parts.append(f"## {tag['name'].capitalize()}\n\n{tag['description']}\n\n" + "\n".join(by_tag[tag["name"]]) + "\n")
    parts.append("## Objects\n\n")
    for name, schema in document["components"]["schemas"].items():
        parts.append(f"### {name}\n\n{cell(schema.get('description', ''))}\n\n{fields_table(schema)}\n")
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).rstrip() + "\n"


# Settings


def settings_page(program):
    return (f"# Settings\n\n{NOTE}One YAML file holds the settings. The daemon reads `$SANDGLASS_CONFIG`, else `/etc/sandglass/sandglass.yaml`, else\n"
            "`~/.config/sandglass/sandglass.yaml`.\n\n"
            "- `sandglass config show` prints the settings in force and the origin of each.\n"
            "- `sandglass config check FILE` checks a file.\n"
            "- `sandglass serve --set KEY=VALUE` overrides one setting.\n"
            "- An environment variable overrides one too: `SANDGLASS_` and the key in capitals, with `_` for each dot.\n\n"
            f"```text\n{output_of(program, 'config', 'describe').rstrip()}\n```\n")


# Metrics


def metrics_page(text):
    labels = {}
    for name, inside in re.findall(r"^(\w+)\{([^}]*)\}", text, re.M):
        labels.setdefault(name, []).extend(key for key in re.findall(r"(\w+)=", inside) if key not in labels.get(name, []))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    rows = []
    for name, help_text in re.findall(r"^# HELP (\w+) (.*)$", text, re.M):
        used = [label for sample in (name, name + "_bucket") for label in labels.get(sample, [])]
        rows.append(f"| `{name}` | {kinds[name]} | {', '.join(f'`{one}`' for one in dict.fromkeys(used))} | {cell(help_text)} |")
    return (f"# Metrics\n\n{NOTE}`GET /metrics` serves them in the text format of Prometheus. With authentication the route needs the role `admin`.\n\n"
            "| metric | type | labels | |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n")


# A daemon that answers for its routes and metrics


def ask(socket, path):
    return subprocess.run(["curl", "-sf", "--unix-socket", socket, f"http://localhost{path}"], capture_output=True, text=True)


def served(program):
    """(/openapi.json, /metrics) of a daemon that has done nothing yet."""
    with tempfile.TemporaryDirectory() as work:
        pathlib.Path(work).chmod(0o711)
        socket = f"{work}/run/s.sock"
        with open(f"{work}/log", "wb") as log:
            daemon = subprocess.Popen([program, "serve", "--state", f"{work}/state", "--listen", f"unix:{socket}", "--backend", "direct",
                                       "--set", "pool.size=0", "--set", "shutdown.policy=destroy"], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 30
            while ask(socket, "/readyz").returncode:
                if daemon.poll() is not None or time.monotonic() > deadline:
                    sys.exit(pathlib.Path(f"{work}/log").read_text())
                time.sleep(0.05)
            return json.loads(ask(socket, "/openapi.json").stdout), ask(socket, "/metrics").stdout
        finally:
            daemon.terminate()
            daemon.wait()


def pages(program):
    document, metrics = served(program)
    return {"commands.md": commands_page(program), "routes.md": routes_page(document), "settings.md": settings_page(program),
            "metrics.md": metrics_page(metrics)}


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages(sys.argv[1]).items():
        (target / name).write_text(text)
