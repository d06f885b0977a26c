# SPDX-License-Identifier: Apache-2.0
"""Changes of files as they happen."""
from sandglass import Client

with Client().session() as session, session.files.watch() as changes:
    session.run("mkdir out; echo 1 > result.txt")
    seen = set()
    for change in changes:
        seen.add(change.path)
        if {"out", "result.txt"} <= seen:
            break
    print(sorted(seen))

# prints:
# ['out', 'result.txt']
