// SPDX-License-Identifier: Apache-2.0
// The TypeScript SDK against a live daemon: ends with "ok" or an assertion.
import assert from "node:assert/strict";
import http from "node:http";
import type { AddressInfo } from "node:net";
import {
  Client, CodeFailed, Conflict, ExecutionFailed, FileNotFound, Gone, Invalid, Unavailable, type Chunk, type CodeValue,
} from "sandglass";

const url = process.env["SANDGLASS_URL"]!;
const client = new Client({ owner: "ts" });
const session = await client.session({ labels: { a: "b" }, keep_files: true });

// Sessions.
assert.equal(session.state, "open");
assert.deepEqual((await client.sessions({ label: { a: "b" } })).map((one) => one.id), [session.id]);
assert.deepEqual((await client.sessions({ label: "a=c" })), []);
assert.equal((await client.attach(session.id)).id, session.id);
await session.update({ labels: { c: "d" } });
assert.deepEqual((await session.refresh()).labels, { c: "d" });
await session.keepalive(1000);
assert.ok(session.expiresAt);
await assert.rejects(client.session({ memroy: 1 } as object), (problem) => problem instanceof Invalid && problem.code === "unknown_field");

// Programs.
const failed = await session.run("echo out; echo err >&2; exit 3", { env: { A: "b" } });
assert.deepEqual([failed.ok, failed.exitCode, failed.stdout, failed.stderr], [false, 3, "out\n", "err\n"]);
assert.match(String(failed), /stderr="err"/);
assert.throws(() => failed.check(), ExecutionFailed);
await assert.rejects(session.run("exit 1", { check: true }), ExecutionFailed);
const told: string[] = [];
await session.run("echo 1; sleep 0.1; echo 2 >&2", { onStdout: (text) => told.push(text), onStderr: async (text) => { told.push(text); } });
assert.deepEqual(told, ["1\n", "2\n"]);
const chunks: Chunk[] = [];
const stream = await session.stream(["sh", "-c", "printf 'a\\377'; sleep 0.1; printf b"]);
for await (const chunk of stream) chunks.push(chunk);
assert.deepEqual(Buffer.concat(chunks.map((chunk) => chunk.data)), Buffer.from([97, 255, 98]));
assert.ok((await stream.wait()).ok);
const sleeper = await session.stream("sleep 1000");
sleeper.close();
assert.equal((await sleeper.process.wait()).state, "cancelled");
const abort = new AbortController();
setTimeout(() => abort.abort(), 100);
await assert.rejects(session.run("sleep 1000", { signal: abort.signal }), { code: "aborted" });
const during = new AbortController();
await assert.rejects(session.run("echo begun; sleep 1000", { signal: during.signal, onStdout: () => during.abort() }), { code: "aborted" });
const cat = await session.start(["cat"], { stdin: true });
await cat.write("typed");
await cat.closeStdin();
assert.equal((await cat.wait()).stdout, "typed");
assert.equal(Buffer.from(await cat.output({ offset: 2 })).toString(), "ped");
const counter = await session.start("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done");
let seen = "";
for await (const chunk of counter.attach()) {
  seen += chunk.text;
  if (seen.includes("2")) break;
}
const rest = counter.attach({ stdout: seen.length });
for await (const chunk of rest) seen += chunk.text;
assert.equal(seen, "1\n2\n3\n4\n5\n");
assert.ok((await rest.wait()).ok);
const limited = await client.execute("print('limited')", { labels: { one: "call" }, idle_timeout: 60, ephemeral: true });
assert.equal(limited.stdout, "limited\n");
assert.equal((await session.execute("open('made.txt', 'w').write('x')")).outputFiles[0], "made.txt");
const endless = await session.start("sleep 1000");
assert.equal((await endless.cancel()).state, "cancelled");
assert.ok((await session.executions({ state: "cancelled" })).some((one) => one.id === endless.id));

// Code.
await session.runCode("x = 6");
assert.equal((await session.runCode("x * 7")).text, "42");
const values: CodeValue[] = [];
const lines: string[] = [];
const shown = await session.runCode("print('hi'); display({'n': 1}); 5", { onStdout: (text) => lines.push(text), onResult: (value) => values.push(value) });
assert.deepEqual([lines.join(""), values.map((value) => value.isMain), shown.text], ["hi\n", [false, true], "5"]);
assert.deepEqual(values[0]!.json, { n: 1 });
const broken = await session.runCode("1 / 0", { onError: (error) => lines.push(error.name) });
assert.deepEqual([broken.error?.name, lines.at(-1)], ["ZeroDivisionError", "ZeroDivisionError"]);
assert.throws(() => broken.check(), CodeFailed);
const context = await session.context({ language: "bash" });
assert.equal((await context.run("echo from bash")).stdout, "from bash\n");
await context.restart();
assert.equal((await session.contexts()).length, 2);
await context.remove();

// Files.
const { files } = session;
assert.equal(await files.writeMany({ "d/one.txt": "alpha\nbeta\n", [`${"long/".repeat(40)}two.txt`]: "gamma" }), 2);
assert.equal((await files.glob("**/*.txt")).length, 3);
assert.deepEqual((await files.grep("BETA", { ignore_case: true })).map((line) => [line.path, line.line]), [["d/one.txt", 2]]);
assert.equal(await files.edit("d/one.txt", "beta", "delta"), 1);
await assert.rejects(files.edit("d/one.txt", "nothing", ""), (problem) => problem instanceof Conflict && problem.detail.error?.count === 0);
assert.equal(await files.readText("d/one.txt"), "alpha\ndelta\n");
await assert.rejects(files.read("nothing"), FileNotFound);
assert.equal(await files.exists("nothing"), false);
await files.write("big", (async function* () { for (let i = 0; i < 64; i++) yield new Uint8Array(65536).fill(i); })(), { mode: 0o600 });
const stat = await files.stat("big");
assert.deepEqual([stat.size, stat.mode], [64 * 65536, "0600"]);
let length = 0;
for await (const piece of files.stream("big")) length += piece.length;
assert.equal(length, stat.size);
await files.move("big", "bigger");
await files.remove("bigger");
await files.mkdir("empty/one");
const archive = await files.archive("d");
assert.equal((await files.unpack(archive, "empty")).unpacked > 0, true);
assert.ok((await files.list(".", 3)).some((file) => file.path.endsWith("empty/one.txt")));
const watch = await files.watch();
await files.write("watched", "x");
for await (const change of watch) {
  assert.equal(change.path, "watched");
  break;
}

// A terminal.
const terminal = await session.pty(["/bin/sh"], { cols: 100, rows: 30 });
await terminal.write("stty size; exit 7\n");
let screen = "";
for await (const chunk of terminal) screen += chunk.text;
assert.match(screen, /30 100/);
assert.equal((await terminal.wait()).exitCode, 7);

// Tools, money, the daemon.
assert.ok((await client.tools()).some((tool) => tool.name === "bash"));
assert.equal((await session.callTool("bash", { command: "echo tool" })).text.trim(), "tool");
assert.equal((await client.flavors())[0]!.name, "cpu-basic");
assert.equal((await session.budget()).session, session.id);
assert.equal((await session.setBudget({ cap_usd: 0.5 })).cap_usd, 0.5);
await session.teardown();
const approval = await session.sandbox({ flavor: "big" });
assert.equal(approval?.state, "pending");
assert.deepEqual((await client.approvals()).map((one) => one.id), [approval!.id]);
assert.equal(await approval!.deny({ reason: "too dear" }), "denied");
assert.equal(await approval!.refresh(1), "denied");
assert.equal((await client.whoami()).owner, "ts");
assert.ok((await client.capacity()).max_sandboxes > 0);
assert.ok((await client.templates()).length && (await client.backends()).length && (await client.nodes()).length);

// Kept files, history, events, the end.
await session.run("echo keep > kept.txt");
const types: string[] = [];
for await (const event of session.events()) types.push(event.type);
assert.equal(types[0], "session.created");
await session.delete();
assert.equal(session.endReason, "deleted");
assert.equal(Buffer.from(await session.kept.read("kept.txt")).toString(), "keep\n");
let entries = 0;
for await (const _ of session.history()) entries++;
assert.ok(entries > types.length);
await assert.rejects(session.run("true"), (problem) => problem instanceof Gone && problem.reason === "deleted");
await session.close();

// A scope.
const scope = client.scope();
const inner = await scope.open();
const innerSession = await inner.session();
assert.deepEqual(await scope.close(), [innerSession.id]);

// How requests are sent: no daemon, a timeout, retries with a logger, headers through a proxy.
const logged: string[] = [];
const logger = { debug: (line: string) => logged.push(line), info: (line: string) => logged.push(line) };
await assert.rejects(new Client({ url: "unix:/nonexistent/s.sock", logger, retries: 1 }).whoami(), (problem) => problem instanceof Unavailable);
assert.equal(logged.filter((line) => line.includes("once more")).length, 1);
const slow = http.createServer(() => {}).listen(0, "127.0.0.1");
await new Promise((done) => slow.once("listening", done));
const port = (slow.address() as AddressInfo).port;
await assert.rejects(new Client({ url: `http://127.0.0.1:${port}`, timeout: 0.1, retries: 0 }).whoami(), { code: "request_timeout" });
slow.closeAllConnections();
slow.close();
const proxied: string[] = [];
const proxy = http.createServer((request, response) => {
  proxied.push(`${request.url} ${request.headers["x-mine"]}`);
  response.end('{"owner":"by proxy"}');
}).listen(0, "127.0.0.1");
await new Promise((done) => proxy.once("listening", done));
const through = new Client({ url: "http://127.0.0.1:9", proxy: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`, headers: { "X-Mine": "yes" } });
assert.equal((await through.whoami()).owner, "by proxy");
assert.deepEqual(proxied, ["http://127.0.0.1:9/api/v1/whoami yes"]);
proxy.closeAllConnections();
proxy.close();

assert.ok(url);
client.close();
console.log("ok");
