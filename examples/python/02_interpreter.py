# SPDX-License-Identifier: Apache-2.0
"""An interpreter that keeps its variables, as a notebook does: values, output, exceptions."""
from sandglass import Client

with Client().session() as session:
    session.run_code("numbers = [1, 2, 3]")
    print(session.run_code("sum(numbers)").text)

    failed = session.run_code("numbers[7]")
    assert failed.error is not None
    print(failed.error.name, "in line", failed.error.frames[-1]["line"])

    with session.context("python") as other:  # its own variables
        print(other.run("'numbers' in globals()").text)

# prints:
# 6
# IndexError in line 1
# False
