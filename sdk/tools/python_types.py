# SPDX-License-Identifier: Apache-2.0
"""Types of the Python SDK, made of the OpenAPI document: a TypedDict for each object and for each body."""
import keyword

HEADER = '''"""Documents of the API as types. Written by scripts/sdk from the OpenAPI document: do not edit.

An answer is a dictionary with these keys; `CreateSession` and the like are the bodies of requests.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired

'''

SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "Dict[str, Any]", "array": "List[Any]"}


def python_type(schema):
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "anyOf" in schema:
        parts = [python_type(part) for part in schema["anyOf"] if part.get("type") != "null"]
        inner = parts[0] if len(parts) == 1 else f"Union[{', '.join(parts)}]"
        return f"Optional[{inner}]" if any(part.get("type") == "null" for part in schema["anyOf"]) else inner
    kinds = schema.get("type")
    if kinds is None:
        return "Any"
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    nullable = "null" in kinds
    parts = [one_type(kind, schema) for kind in kinds if kind != "null"]
    inner = parts[0] if len(parts) == 1 else f"Union[{', '.join(parts)}]"
    return f"Optional[{inner}]" if nullable else inner


def one_type(kind, schema):
    if schema.get("enum") and "x-codes" not in schema:  # there may be more codes than today
        return "Literal[" + ", ".join(repr(value) for value in schema["enum"] if value is not None) + "]"
    if kind == "array" and schema.get("items"):
        return f"List[{python_type(schema['items'])}]"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"Dict[str, {python_type(schema['additionalProperties'])}]"
    return SCALARS[kind]


def sentence(text):
    return text.rstrip(".")[:1].upper() + text.rstrip(".")[1:] + "."


def wrapped(text):
    return text.replace('"', "'")


def make_class(name, schema, help_text, is_body=False):
    fields = schema.get("properties", {})
    required = set(schema.get("required", []))
    strange = [field for field in fields if keyword.iskeyword(field) or not field.isidentifier()]
    if strange:
        rows = ", ".join(functional(field, part, field in required) for field, part in fields.items())
        return f'{name} = TypedDict("{name}", {{{rows}}})\n'
    lines = [f"class {name}(TypedDict):", f'    """{wrapped(sentence(help_text))}"""', ""]
    for field, part in fields.items():
        kind = python_type(part)
        if is_body and field not in required:
            kind = f"Optional[{kind}]"
        lines.append(f"    {field}: {kind if field in required else f'NotRequired[{kind}]'}")
        if part.get("description"):
            lines.append(f'    """{wrapped(part["description"])}"""')
    return "\n".join(lines).rstrip() + "\n"


def functional(field, part, required):
    kind = python_type(part)
    return f'"{field}": "{kind if required else f"NotRequired[{kind}]"}"'


def bodies(document):
    for path in document["paths"].values():
        for operation in path.values():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            if schema.get("properties"):
                name = operation["operationId"][0].upper() + operation["operationId"][1:]
                yield name, schema, f"{operation['summary']}: its body"


def keywords(document):
    """Bodies as keyword arguments of a call that has some of their fields as parameters of its own."""
    own = {"Execute": ("code", "language")}
    for name, schema, help_text in bodies(document):
        if name in own:
            properties = {field: part for field, part in schema["properties"].items() if field not in own[name]}
            yield f"{name}Options", {"properties": properties}, help_text.replace(": its body", ": its options")


def generate(document):
    """The source of sandglass/types.py."""
    classes = [make_class(name, schema, schema.get("description", name))
               for name, schema in sorted(document["components"]["schemas"].items())]
    known = set(document["components"]["schemas"])
    for name, schema, help_text in sorted([*bodies(document), *keywords(document)], key=lambda row: row[0]):
        classes.append(make_class(name if name not in known else name + "Body", schema, help_text, is_body=True))
    return HEADER + "\n\n" + "\n\n".join(classes)
