# SPDX-License-Identifier: Apache-2.0
"""A terminal: type, read the screen, change its size."""
from sandglass import Client

with Client().session() as session:
    with session.pty(["/bin/sh"], columns=100, rows=30) as terminal:
        terminal.write("stty size\n")
        terminal.write("exit 7\n")
        screen = "".join(chunk.text for chunk in terminal)
        print("30 100" in screen, terminal.wait().exit_code)

# prints:
# True 7
