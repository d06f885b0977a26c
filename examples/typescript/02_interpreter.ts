// SPDX-License-Identifier: Apache-2.0
// An interpreter that keeps its variables, as a notebook does: values, output, exceptions.
import { Client } from "sandglass";

const session = await new Client().session();
try {
  await session.runCode("numbers = [1, 2, 3]");
  console.log((await session.runCode("sum(numbers)")).text);

  const failed = await session.runCode("numbers[7]");
  console.log(failed.error?.name, "in line", failed.error?.frames.at(-1)?.line);

  const other = await session.context({ language: "python" }); // its own variables
  console.log((await other.run("'numbers' in globals()")).text);
  await other.remove();
} finally {
  await session.close();
}

// prints:
// 6
// IndexError in line 1
// False
