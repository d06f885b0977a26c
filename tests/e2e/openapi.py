# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of a daemon as a judge: every answer that a test gets must be one that the document describes."""
import copy
import json
import re

import jsonschema

JSON = "application/json"


class Judge:
    """Knows the document; `check()` fails for an answer outside of it. Stricter than the document: fields that it does not name
    are refused, because they were forgotten there."""

    def __init__(self, document):
        self.document = document
        self.seen = set()
        self.components = copy.deepcopy(document["components"])
        for schema in self.components["schemas"].values():
            schema["additionalProperties"] = False
        self.routes = [(re.compile("^" + re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)) + "$"), path, operations)
                       for path, operations in document["paths"].items()]

    def operation(self, method, path):
        fits = [(template, operations) for pattern, template, operations in self.routes if pattern.match(path)]
        fits.sort(key=lambda fit: fit[0].count("{"))
        for template, operations in fits:
            if method.lower() in operations:
                return template, operations[method.lower()]
        raise AssertionError(f"{method} {path} is not in the document")

    def answer(self, operation, status):
        answers = operation["responses"]
        found = answers.get(str(status), answers["default"])
        return self.resolve(found)

    def resolve(self, node):
        while "$ref" in node:
            _, *names = node["$ref"].split("/")
            node = self.document
            for name in names:
                node = node[name]
        return node

    def check(self, method, target, status, media, body):
        template, operation = self.operation(method, target.split("?")[0])
        if status < 400:
            assert str(status) in operation["responses"], f"{method} {template}: {status} is not described"
        content = self.answer(operation, status).get("content", {})
        media = (media or "").split(";")[0]
        self.seen.add(operation["operationId"])
        if not body and not content:
            return
        assert media in content or "*/*" in content or "application/octet-stream" in content, \
            f"{method} {template} {status}: {media} is not among {list(content)}"
        if media == JSON and JSON in content:
            self.validate(content[JSON]["schema"], json.loads(body), f"{method} {template} {status}")

    def validate(self, schema, value, where):
        validator = jsonschema.Draft202012Validator({**schema, "components": self.components})
        problems = sorted(validator.iter_errors(value), key=str)
        assert not problems, f"{where}: {problems[0].message[:600]} at {list(problems[0].absolute_path)}"
