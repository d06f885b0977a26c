// SPDX-License-Identifier: Apache-2.0
// A proxy with a prefix, as a company has one: proxy.mjs PORT PREFIX; prints its own port.
import { createServer, request } from "node:http";

const [port, prefix] = process.argv.slice(2);
const server = createServer((question, answer) => {
  if (!question.url.startsWith(`${prefix}/`)) { answer.writeHead(404).end(); return; }
  const passed = request({ host: "127.0.0.1", port, method: question.method, path: question.url.slice(prefix.length), headers: question.headers }, back => {
    answer.writeHead(back.statusCode, back.headers);
    back.pipe(answer);
  });
  passed.on("error", () => answer.destroy());
  answer.on("close", () => passed.destroy());
  question.pipe(passed);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
