// SPDX-License-Identifier: Apache-2.0
// Output while a program runs: by callback, or as an iterator with exact bytes and offsets.
import { Client } from "sandglass";

const session = await new Client().session();
try {
  await session.run("for n in 1 2; do echo step $n; sleep 0.2; done", { onStdout: (text) => console.log("told:", text.trim()) });

  const output = await session.stream("printf abc; sleep 0.2; printf def");
  for await (const chunk of output) console.log(chunk.stream, chunk.offset, chunk.text, chunk.data.length);
  console.log((await output.wait()).exitCode);
} finally {
  await session.close();
}

// prints:
// told: step 1
// told: step 2
// stdout 0 abc 3
// stdout 3 def 3
// 0
