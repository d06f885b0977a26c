// SPDX-License-Identifier: Apache-2.0
// A program in the background: wait for what it prints, leave, and come back at the byte where we left.
import { Client } from "sandglass";

const session = await new Client().session();
try {
  const process = await session.start("echo ready; read line; echo got $line", { stdin: true });
  console.log((await process.waitFor({ output: "ready" })).met);

  let offset = 0;
  for await (const chunk of process.attach()) {
    console.log(chunk.text.trim());
    offset = chunk.offset + chunk.data.length;
    break; // leaving does not end the program
  }

  const again = session.execution(process.id); // as another process of ours would
  await again.write("this\n");
  const output = again.attach({ stdout: offset });
  for await (const chunk of output) console.log(chunk.text.trim());
  console.log((await output.wait()).ok);
} finally {
  await session.close();
}

// prints:
// true
// ready
// got this
// true
