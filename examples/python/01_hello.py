# SPDX-License-Identifier: Apache-2.0
"""A session, a program in it, and code."""
from sandglass import Client

with Client().session(memory_bytes="512m", labels={"example": "hello"}) as session:
    print(session.run(["echo", "hello"]).stdout.strip())
    result = session.run("echo oops >&2; exit 3")
    print(result.exit_code, result.stderr.strip())
    print(session.execute("print(6 * 7)").stdout.strip())

# prints:
# hello
# 3 oops
# 42
