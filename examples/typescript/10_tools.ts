// SPDX-License-Identifier: Apache-2.0
// Tools for a model: the list with JSON schemas, and its calls.
import { Client } from "sandglass";

const client = new Client();
const tools = await client.tools();
console.log(tools.some((tool) => tool.name === "bash"));

const session = await client.session();
try {
  for (const [name, args] of [["bash", { command: "echo from a tool" }], ["python", { code: "2 ** 10" }]] as const) {
    const result = await session.callTool(name, args);
    console.log(result.isError, result.text.split("\n")[0]);
  }
} finally {
  await session.close();
}

// prints:
// true
// false from a tool
// false 1024
