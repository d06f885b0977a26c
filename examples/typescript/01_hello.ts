// SPDX-License-Identifier: Apache-2.0
// A session, a program in it, and code.
import { Client } from "sandglass";

const client = new Client();
const session = await client.session({ memory_bytes: "512m", labels: { example: "hello" } });
try {
  console.log((await session.run(["echo", "hello"])).stdout.trim());
  const result = await session.run("echo oops >&2; exit 3");
  console.log(result.exitCode, result.stderr.trim());
  console.log((await session.execute("print(6 * 7)")).stdout.trim());
} finally {
  await session.close();
}

// prints:
// hello
// 3 oops
// 42
