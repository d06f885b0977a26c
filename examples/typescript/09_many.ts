// SPDX-License-Identifier: Apache-2.0
// Many sessions at once, all gone at the end of the scope.
import { Client } from "sandglass";

const scope = new Client().scope();
const client = await scope.open();
try {
  const squares = await Promise.all([1, 2, 3, 4, 5].map(async (number) => {
    const session = await client.session();
    return (await session.run(["expr", String(number), "*", String(number)])).stdout.trim();
  }));
  console.log(squares.join(" "));
} finally {
  console.log((await scope.close()).length, "sessions are gone");
}

// prints:
// 1 4 9 16 25
// 5 sessions are gone
