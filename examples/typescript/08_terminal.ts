// SPDX-License-Identifier: Apache-2.0
// A terminal: type, read the screen, change its size.
import { Client } from "sandglass";

const session = await new Client().session();
try {
  const terminal = await session.pty(["/bin/sh"], { cols: 100, rows: 30 });
  await terminal.write("stty size\n");
  await terminal.write("exit 7\n");
  let screen = "";
  for await (const chunk of terminal) screen += chunk.text;
  console.log(screen.includes("30 100"), (await terminal.wait()).exitCode);
} finally {
  await session.close();
}

// prints:
// true 7
