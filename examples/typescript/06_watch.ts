// SPDX-License-Identifier: Apache-2.0
// Changes of files as they happen.
import { Client } from "sandglass";

const session = await new Client().session();
try {
  const changes = await session.files.watch();
  await session.run("mkdir out; echo 1 > result.txt");
  const seen = new Set<string>();
  for await (const change of changes) {
    seen.add(change.path);
    if (seen.has("out") && seen.has("result.txt")) break;
  }
  console.log([...seen].sort().join(" "));
} finally {
  await session.close();
}

// prints:
// out result.txt
