# SPDX-License-Identifier: Apache-2.0
"""A program in the background: wait for what it prints, leave, and come back at the byte where we left."""
from sandglass import Client

with Client().session() as session:
    process = session.start("echo ready; read line; echo got $line", stdin=True)
    print(process.wait_for(output="ready")["met"])

    with process.attach() as output:  # leaving does not end the program
        first = next(output)
    print(first.data)

    again = session.execution(process.id)  # as another process of ours would
    again.stdin.write("this\n")
    with again.attach(stdout=first.offset + len(first.data)) as output:
        print(b"".join(chunk.data for chunk in output))
        print(output.wait().ok)

# prints:
# True
# b'ready\n'
# b'got this\n'
# True
