// SPDX-License-Identifier: Apache-2.0
// One of the official clients against the server: node client.mjs SDK TRANSPORT TARGET, where SDK is v1, v2 or stateless (v2
// with the newest protocol), TRANSPORT is http or stdio, and TARGET a URL or the program. Prints what it found as JSON.
// NODE_MODULES says where the packages are.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [sdk, kind, target] = process.argv.slice(2);
const require = createRequire(process.env.NODE_MODULES + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)));

async function connect() {
    if (sdk === 'v1') {
        const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
        const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js');
        return { client: new Client({ name: 'test', version: '1' }), StreamableHTTPClientTransport, StdioClientTransport };
    }
    const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
    const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
    const options = sdk === 'stateless' ? { versionNegotiation: { mode: 'auto' } } : {};
    return { client: new Client({ name: 'test', version: '1' }, options), StreamableHTTPClientTransport, StdioClientTransport };
}

const { client, StreamableHTTPClientTransport, StdioClientTransport } = await connect();
const transport = kind === 'http' ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args: ['mcp'], env: process.env, stderr: 'inherit' });
// The two SDKs differ in whether a schema stands between the request and its options.
const call = (params, options) => sdk === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options);
const textOf = (result) => result.content.filter((part) => part.type === 'text').map((part) => part.text).join('');

await client.connect(transport);
const found = { server: client.getServerVersion()?.name };
found.tools = (await client.listTools()).tools.map((tool) => tool.name);

const made = await call({ name: 'execute_python', arguments: { code: 'open("made.txt", "w").write("by a tool")' } });
const session = /id=(\S+)/.exec(textOf(made))[1];
const link = made.content.find((part) => part.type === 'resource_link');
found.resource = (await client.readResource({ uri: link.uri })).contents[0].text;

const progress = [];
const run = { name: 'bash', arguments: { command: 'for i in 1 2 3; do echo $i; sleep 0.3; done', session_id: session } };
found.output = textOf(await call(run, { onprogress: (note) => progress.push(note.message) }));
found.progress = progress.join('');

const stop = new AbortController();
const long = call({ name: 'bash', arguments: { command: 'sleep 1006', session_id: session } }, { signal: stop.signal });
setTimeout(() => stop.abort('enough'), 300);
found.cancelled = await long.then(() => false, () => true);
found.after = textOf(await call({ name: 'bash', arguments: { command: 'cat made.txt', session_id: session } }));
found.mistake = (await call({ name: 'bash', arguments: { session_id: session } })).isError;
found.unknown = await call({ name: 'no_such_tool', arguments: {} }).then(() => null, (error) => error.code);
await call({ name: 'manage_session', arguments: { operation: 'destroy', session_id: session } });
await client.close();
console.log(JSON.stringify(found));
process.exit(0);
