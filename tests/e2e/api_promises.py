# SPDX-License-Identifier: Apache-2.0
"""What clients of /api/v1 may rely on, as lines of text: api-v1.txt has those that were promised.

    api_promises.py OPENAPI.JSON > tests/e2e/api-v1.txt     after a release, or with a new route
"""
import json
import sys

PREFIX = "/api/v1/"


def kind_of(schema):
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "anyOf" in schema:
        return "|".join(sorted(kind_of(one) for one in schema["anyOf"]))
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    inner = schema.get("items") if "array" in kinds else schema.get("additionalProperties")
    return "|".join(sorted(kinds)) + (f" of {kind_of(inner)}" if isinstance(inner, dict) else "")


def promises_of_route(where, operation):
    yield where
    for parameter in operation["parameters"]:
        need = "must" if parameter["required"] else "may"
        yield f"{where}: {need} {parameter['in']} {parameter['name']} {kind_of(parameter['schema'])}"
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {})
    for field, schema in body.get("properties", {}).items():
        yield f"{where}: {'must' if field in body.get('required', []) else 'may'} field {field} {kind_of(schema)}"
    for status, answer in operation["responses"].items():
        for media, part in answer.get("content", {}).items():
            if status[0] == "2":
                yield f"{where}: answer {status} {media} {kind_of(part.get('schema', {}))}"


def promises(document):
    """All lines, those of deprecated names too: they stay until the release that drops them."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith(PREFIX):
                yield from promises_of_route(f"{method.upper()} {path}", operation)
    for name, schema in document["components"]["schemas"].items():
        for field, part in schema["properties"].items():
            always = "always" if field in schema.get("required", []) else "sometimes"
            yield f"{name}: {always} {field} {kind_of(part)}"
            for value in part.get("enum", []):
                yield f"{name}: {field} may be {value}"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        print("\n".join(sorted(set(promises(json.load(source))))))
