# SPDX-License-Identifier: Apache-2.0
"""The modules of the plain client, made of those for asyncio: the same calls without await."""
import re

HEADER = "# Written by scripts/sdk from aio/{name}: do not edit.\n"

WORDS = [
    (r"\basync def\b", "def"), (r"\basync with\b", "with"), (r"\basync for\b", "for"), (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"), (r"\b__aexit__\b", "__exit__"), (r"\b__aiter__\b", "__iter__"),
    (r"\b__anext__\b", "__next__"), (r"\bStopAsyncIteration\b", "StopIteration"), (r"\bAsync([A-Z])", r"\1"),
    (r"\banext\(", "next("), (r"\baiter\(", "iter("), (r"\basync_next\(", "next("),
    (r"^(\s*)from \.\.(\w)", r"\1from .\2"), (r"^(\s*)from \.\. import", r"\1from . import"),
    (r"\bshielded\((.*)\)$", r"\1"), (r", shielded$", ""), (r"\.aclose\(", ".close("), (r"asyncio\.run\((\w+)\(\)\)", r"\1()"),
]

MODULES = ["approval.py", "client.py", "context.py", "execution.py", "files.py", "session.py", "storage.py"]


def generate(name, source):
    """The plain module of one for asyncio."""
    lines = []
    for line in source.splitlines():
        if line.rstrip().endswith("# asyncio only"):
            continue
        for pattern, replacement in WORDS:
            line = re.sub(pattern, replacement, line)
        lines.append(line)
    return HEADER.format(name=name) + "\n".join(lines) + "\n"
