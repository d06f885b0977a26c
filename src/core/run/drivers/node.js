// SPDX-License-Identifier: Apache-2.0
// The JavaScript of a context: runs code after code in one global scope and tells what came of it.
//
// Requests come on the original stdin, each ending with a NUL: a line "TOKEN NUMBER", then the code. Messages go between
// what the code prints, into stdout, in frames of at most PIPE_BUF bytes; the end of a run is marked in stderr too.
'use strict';
const fs = require('fs');
const util = require('util');
const vm = require('vm');
const { createRequire } = require('module');
const { pathToFileURL } = require('url');

const FRAME_BYTES = 4000;
let token = '';

try { fs.unlinkSync(__filename); } catch {}

// The pipes block: what is written is there before the next thing happens.
for (const stream of [process.stdout, process.stderr])
    if (stream._handle && stream._handle.setBlocking) stream._handle.setBlocking(true);

function writeAll(descriptor, data) {
    for (let at = 0; at < data.length;) {
        try {
            at += fs.writeSync(descriptor, data, at);
        } catch (problem) {
            if (problem.code !== 'EAGAIN') throw problem;
        }
    }
}

function send(message, descriptor = 1) {
    const data = Buffer.from(JSON.stringify(message));
    for (let at = 0; at < data.length; at += FRAME_BYTES) {
        const piece = data.subarray(at, at + FRAME_BYTES);
        const kind = at + FRAME_BYTES >= data.length ? 'm' : 'p';
        const head = `\x1e${token}${kind}${piece.length.toString(16).padStart(4, '0')}\n`;
        writeAll(descriptor, Buffer.concat([Buffer.from(head), piece]));
    }
}

// Into both streams: where a run begins and ends.
function tell(message) {
    send(message, 1);
    send(message, 2);
}

function bundle(value) {
    const data = { 'text/plain': util.inspect(value) };
    if (value !== null && typeof value === 'object') {
        try {
            const plain = Object.getPrototypeOf(value);
            if (Array.isArray(value) || plain === Object.prototype || plain === null)
                data['application/json'] = JSON.parse(JSON.stringify(value));
        } catch {}
    }
    return data;
}

function describe(problem) {
    if (!(problem instanceof Error) && !(problem && problem.stack))
        return { type: 'error', name: 'Error', value: String(problem), frames: [], traceback: String(problem) };
    const frames = [];
    const lines = String(problem.stack).split('\n').filter((line, at) => at === 0 || !line.includes(__filename) && !line.includes('(node:'));
    for (const line of lines) {
        const found = /^\s+at (?:(.*) \()?((?:<cell|\/).*?):(\d+)(?::\d+)?\)?$/.exec(line);
        if (found) frames.push({ file: found[2], line: Number(found[3]), function: found[1] || null, text: null });
    }
    return { type: 'error', name: problem.name || 'Error', value: String(problem.message), frames, traceback: lines.join('\n') };
}

globalThis.display = (value, options = {}) => send({ type: 'display', data: options.raw ? value : bundle(value) });
globalThis.require = createRequire(process.cwd() + '/');
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
// Node before 21.7 and 20.10, such as Debian 12's, has no loader for scripts that needs no flag: there this file imports for them.
const loader = vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
Object.defineProperty(globalThis, '__import', { value: (name) => {
    let found = name;
    try { found = globalThis.require.resolve(name); } catch { /* a URL, or import() says what is wrong */ }
    return import(found.startsWith('/') ? pathToFileURL(found).href : found);
} });
const start = (file) => new vm.Script(loader ? file.code : file.code.replace(/(?<![\w$.])import\s*\(/g, '__import('),
    { filename: file.name, importModuleDynamically: loader });

// Static imports, which only modules may have, as dynamic ones that give the same names.
function withoutImports(code) {
    const names = (list) => list.replace(/\bas\b/g, ':');
    return code
        .replace(/^(\s*)import\s+(['"][^'"]+['"])/gm, '$1await import($2)')
        .replace(/^(\s*)import\s+\*\s+as\s+([\w$]+)\s+from\s+(['"][^'"]+['"])/gm, '$1$2 = await import($3)')
        .replace(/^(\s*)import\s+([\w$]+)\s+from\s+(['"][^'"]+['"])/gm, '$1$2 = (await import($3)).default')
        .replace(/^(\s*)import\s+(\{[^}]*\})\s+from\s+(['"][^'"]+['"])/gm, (_, space, list, from) => `${space};(${names(list)} = await import(${from}))`);
}

// Code that awaits at its top level runs in a function: what it declares there with var, function or as a plain assignment lives on.
function compile(code, number) {
    const name = `<cell ${number}>`;
    try {
        return start({ code, name });
    } catch (problem) {
        if (!(problem instanceof SyntaxError)) throw problem;
        if (/^\s*import\b/m.test(code)) code = withoutImports(code);
        if (!/\bawait\b/.test(code)) throw problem;
    }
    const lines = code.replace(/^(\s*)(?:const|let|var)\s+(?=[A-Za-z_$][\w$]*\s*=)/gm, '$1');
    try {
        return start({ code: `(async () => (${lines.trim().replace(/;$/, '')}\n))()`, name });
    } catch {
        return start({ code: `(async () => {${lines}\n})()`, name });
    }
}

// The listener stays: without one a signal ends the interpreter. While a script runs, breakOnSigint stands in for it.
let interrupt = () => {};
const onSignal = () => interrupt();

// Code may have added listeners, or removed ours.
function listenForInterrupts() {
    if (!process.listeners('SIGINT').includes(onSignal)) process.on('SIGINT', onSignal);
    for (const listener of process.listeners('SIGINT'))
        if (listener !== onSignal) process.removeListener('SIGINT', listener);
}

async function run(code, number) {
    let state = 'ok';
    tell({ type: 'begin' });
    const onInterrupt = new Promise((_, reject) => { interrupt = () => reject(new Error('interrupted')); });
    onInterrupt.catch(() => {});
    try {
        const script = compile(code, number);
        let value = script.runInThisContext({ breakOnSigint: true });
        if (value && typeof value.then === 'function') value = await Promise.race([value, onInterrupt]);
        if (value !== undefined) send({ type: 'result', data: bundle(value) });
    } catch (problem) {
        state = 'error';
        send(describe(problem));
    }
    interrupt = () => {};
    listenForInterrupts();
    tell({ type: 'done', state });
}

listenForInterrupts();
process.on('uncaughtException', (problem) => process.stderr.write(`${problem && problem.stack || problem}\n`));
process.on('unhandledRejection', (problem) => process.stderr.write(`${problem && problem.stack || problem}\n`));

let pending = Buffer.alloc(0);
let work = Promise.resolve();
process.stdin.on('data', (data) => {
    pending = Buffer.concat([pending, data]);
    for (let end; (end = pending.indexOf(0)) >= 0; pending = pending.subarray(end + 1)) {
        const request = pending.subarray(0, end).toString();
        const line = request.indexOf('\n');
        const [nextToken, number] = request.slice(0, line).split(' ');
        work = work.then(() => { token = nextToken; return run(request.slice(line + 1), number); });
    }
});
process.stdin.on('end', () => work.then(() => process.exit(0)));
