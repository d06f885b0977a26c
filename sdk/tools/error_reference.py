# SPDX-License-Identifier: Apache-2.0
"""docs/reference/errors.md, made of the codes in the OpenAPI document."""

HEADER = """# Codes of errors

Every failure is `{"error": {"code", "message", "hint", "retryable"}}` ([HTTP API](http-api.md#failures)). `code` is stable and meant to be matched; more
codes may be added. The status is the usual one: a code can come with another where the same thing is found out at another time. This page is written by
`scripts/sdk` from the OpenAPI document, whose schema `ErrorDetail` has the same list.
"""

STATUSES = {0: "In documents of executions and files", 400: "400: the request is wrong and will stay so", 401: "401: who is asking", 403: "403: not allowed",
            404: "404: unknown, or of another owner", 405: "405", 408: "408", 409: "409: conflicts with what there is", 410: "410: has ended",
            412: "412", 413: "413: too large", 414: "414", 415: "415", 416: "416", 417: "417", 429: "429: over a limit; see `Retry-After`", 431: "431",
            500: "500: a fault of the daemon or its host", 501: "501", 502: "502: the sandbox, or what makes it, failed",
            503: "503: not now; see `Retry-After`", 504: "504: not in time", 505: "505", 507: "507: a disk is full"}


def generate(document):
    codes = document["components"]["schemas"]["ErrorDetail"]["properties"]["code"]["x-codes"]
    parts = [HEADER]
    for status in sorted({row["status"] for row in codes.values()}):
        rows = [f"| `{code}` | {row['meaning']} |" for code, row in codes.items() if row["status"] == status]
        parts.append("\n".join([f"## {STATUSES[status]}", "", "| code | meaning |", "| --- | --- |", *rows]) + "\n")
    return "\n".join(parts)
