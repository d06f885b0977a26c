# SPDX-License-Identifier: Apache-2.0
"""Output while a program runs: by callback, or as an iterator with exact bytes and offsets."""
from sandglass import Client

with Client().session() as session:
    session.run("for n in 1 2; do echo step $n; sleep 0.2; done", on_stdout=lambda text: print("told:", text.strip()))

    with session.stream("printf abc; sleep 0.2; printf def") as output:
        for chunk in output:
            print(chunk.stream, chunk.offset, chunk.data)
        print(output.wait().exit_code)

# prints:
# told: step 1
# told: step 2
# stdout 0 b'abc'
# stdout 3 b'def'
# 0
