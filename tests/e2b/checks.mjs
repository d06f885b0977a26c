// SPDX-License-Identifier: Apache-2.0
// Checks of the JavaScript clients: node checks.mjs sdk|code. Each has a sandbox of its own unless it makes one. Prints {name: null or why it failed}.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const resolve = createRequire(process.env.NODE_MODULES + '/x').resolve
const load = (name) => import(pathToFileURL(resolve(name)).href).then((m) => m.default?.Sandbox ? { ...m.default, ...m } : m)
const sdk = await load('e2b')
const { Sandbox, Template } = sdk
const kind = process.argv[2]
const code = kind === 'code' ? await load('@e2b/code-interpreter') : null
const Class = code ? code.Sandbox : Sandbox
const pause = (ms) => new Promise((done) => setTimeout(done, ms))
const until = async (condition) => {
    for (const end = Date.now() + 10000; !(await condition());) {
        assert(Date.now() < end, `not within ten seconds: ${condition}`)
        await pause(20)
    }
}
const label = () => ({ test: Math.random().toString(36).slice(2) })
const rejects = (promise, type) => assert.rejects(promise, (problem) => problem instanceof type || assert.fail(`${problem.name}: ${problem.message}`))

const control = {
    'create answers with a running sandbox': async (box) => assert.equal(await box.isRunning(), true),
    'info tells metadata, size and end': async () => {
        const box = await Sandbox.create({ metadata: { a: 'b c&d=é' }, timeoutMs: 60000 })
        const info = await box.getInfo()
        assert.deepEqual(info.metadata, { a: 'b c&d=é' })
        assert.equal(info.state, 'running')
        assert(Math.abs(info.endAt - info.startedAt - 60000) < 5000)
        assert(info.cpuCount > 0 && info.memoryMB > 0)
        await box.kill()
    },
    'a list filters by metadata and pages': async () => {
        const metadata = label()
        const boxes = [await Sandbox.create({ metadata }), await Sandbox.create({ metadata })]
        const pages = Sandbox.list({ limit: 1, query: { metadata } })
        assert.equal((await pages.nextItems())[0].sandboxId, boxes[1].sandboxId)
        assert.equal(pages.hasNext, true)
        assert.equal((await pages.nextItems())[0].sandboxId, boxes[0].sandboxId)
        assert.equal(pages.hasNext, false)
        assert.equal((await Sandbox.list({ query: { metadata, state: ['paused'] } }).nextItems()).length, 0)
        for (const box of boxes) await box.kill()
    },
    'a sandbox is killed once': async () => {
        const box = await Sandbox.create()
        assert.equal(await Sandbox.kill(box.sandboxId), true)
        assert.equal(await Sandbox.kill(box.sandboxId), false)
        assert.equal(await box.isRunning(), false)
        await rejects(Sandbox.connect(box.sandboxId), sdk.SandboxNotFoundError ?? sdk.NotFoundError)
    },
    'a timeout ends the sandbox': async () => {
        const box = await Sandbox.create({ timeoutMs: 60000 })
        await box.setTimeout(1000)
        await until(async () => !(await box.isRunning()))
    },
    'connect never shortens the life of a sandbox': async () => {
        const box = await Sandbox.create({ timeoutMs: 300000 })
        const before = (await box.getInfo()).endAt
        await Sandbox.connect(box.sandboxId, { timeoutMs: 5000 })
        assert((await box.getInfo()).endAt >= before)
        await box.kill()
    },
    'pause keeps processes, and connect resumes them': async (box) => {
        const command = await box.commands.run('sleep 60', { background: true })
        assert.equal(await box.pause(), true)
        assert.equal(await box.isRunning(), false)
        assert.equal(await box.pause(), false)
        const again = await Sandbox.connect(box.sandboxId)
        assert.equal(again.sandboxId, box.sandboxId)
        assert((await box.commands.list()).some((one) => one.pid === command.pid))
    },
    'a sandbox pauses at its timeout when it was asked to': async () => {
        const box = await Sandbox.create({ timeoutMs: 1000, lifecycle: { onTimeout: 'pause' } })
        await until(async () => (await box.getInfo()).state === 'paused')
        await box.kill()
    },
    'traffic wakes a sandbox with auto-resume': async () => {
        const box = await Sandbox.create({ lifecycle: { onTimeout: 'pause', autoResume: true } })
        await box.pause()
        assert.equal((await box.commands.run('echo awake')).stdout, 'awake\n')
        await box.kill()
    },
    'usage is measured': async (box) => {
        await until(async () => (await box.getMetrics()).length > 0)
        const [one] = await box.getMetrics()
        assert(one.memTotal > 0 && one.diskTotal > 0 && one.cpuCount > 0)
    },
    'an unknown template is refused': () => rejects(Sandbox.create('no-such-template'), sdk.SandboxError),
    'a wrong key is refused': () => rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(64) }), sdk.AuthenticationError),
    'a sandbox without a network has none': async () => {
        const box = await Sandbox.create({ allowInternetAccess: false })
        assert.equal((await box.commands.run('tail -n +3 /proc/net/dev | cut -d: -f1')).stdout.trim(), 'lo')
        await box.kill()
    },
    'a template of the server gets another name, and tags': async () => {
        const name = `test-${label().test}`
        await Template.build(Template().fromTemplate('base'), name)
        assert.equal(await Template.exists(name), true)
        assert.equal(await Template.exists(name + 'x'), false)
        await Template.assignTags(`${name}:default`, ['v1'])
        const box = await Sandbox.create(`${name}:v1`)
        assert.equal((await box.commands.run('echo 1')).stdout, '1\n')
        await box.kill()
        await Template.removeTags(name, ['v1'])
        await rejects(Sandbox.create(`${name}:v1`), sdk.SandboxError)
    },
    'a template is built with steps': async () => Template.build(Template().fromTemplate('base').runCmd('true'), `test-${label().test}`),
    'a snapshot is made': (box) => box.createSnapshot(),
    'a sandbox is forked': (box) => box.fork(),
    'a volume is made': () => sdk.Volume.create(`test-${label().test}`),
    'egress is limited to some addresses': async () => (await Sandbox.create({ network: { allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'] } })).kill(),
    'a pause leaves memory behind': (box) => box.pause({ keepMemory: false }),
}

const commands = {
    'output, exit code and error of a command': async (box) => {
        const done = await box.commands.run('echo out; echo err >&2')
        assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n', 'err\n', 0])
        await assert.rejects(box.commands.run('exit 3'), (problem) => problem.exitCode === 3)
    },
    'the user, the home and the directory': async (box) => {
        assert.equal((await box.commands.run('whoami; pwd; echo $HOME')).stdout, 'user\n/home/user\n/home/user\n')
        assert.equal((await box.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    },
    'variables of the sandbox and of the command': async () => {
        const box = await Sandbox.create({ envs: { A: '1', B: '2' } })
        assert.equal((await box.commands.run('echo $A $B $E2B_SANDBOX', { envs: { B: '3' } })).stdout, '1 3 true\n')
        await box.kill()
    },
    'input, and the end of it': async (box) => {
        const command = await box.commands.run('cat', { background: true, stdin: true })
        await box.commands.sendStdin(command.pid, 'hello')
        await box.commands.closeStdin(command.pid)
        assert.equal((await command.wait()).stdout, 'hello')
    },
    'output comes as it is written': async (box) => {
        let seen = ''
        const command = await box.commands.run('echo first; sleep 30', { background: true, onStdout: (text) => { seen += text } })
        await until(async () => seen === 'first\n')
        assert.equal(await command.kill(), true)
    },
    'a command outlives its client, and another joins': async (box) => {
        const command = await box.commands.run('sleep 1; echo done', { background: true })
        await command.disconnect()
        assert.equal((await (await box.commands.connect(command.pid)).wait()).exitCode, 0)
    },
    'a timeout stops a command': (box) => rejects(box.commands.run('sleep 30', { timeoutMs: 500 }), sdk.TimeoutError),
    'killing the sandbox ends its commands': async () => {
        const box = await Sandbox.create()
        const waiting = box.commands.run('sleep 60')
        waiting.catch(() => {})
        await until(async () => (await box.commands.list()).length > 0)
        await box.kill()
        await rejects(waiting, sdk.SandboxError)
    },
    'a terminal echoes and has a size': async (box) => {
        let seen = ''
        const pty = await box.pty.create({ cols: 91, rows: 24, onData: (data) => { seen += new TextDecoder().decode(data) } })
        await box.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit\n'))
        await pty.wait()
        assert.match(seen, /24 91/)
    },
    'root runs commands': async (box) => assert.equal((await box.commands.run('id -u', { user: 'root' })).stdout, '0\n'),
    'git works in a sandbox': async (box) => {
        await box.git.init('/home/user/repository')
        await box.files.write('/home/user/repository/a', 'x')
        await box.git.add('/home/user/repository')
        await box.git.commit('/home/user/repository', 'first', { authorName: 'a', authorEmail: 'a@example.com' })
        assert.equal((await box.git.status('/home/user/repository')).fileStatus.length, 0)
    },
}

const files = {
    'a file is written and read': async (box) => {
        await box.files.write('a/b/c.txt', 'hé')
        assert.equal(await box.files.read('a/b/c.txt'), 'hé')
        assert.equal(await box.files.read('/home/user/a/b/c.txt'), 'hé')
        assert.deepEqual([...(await box.files.read('a/b/c.txt', { format: 'bytes' }))], [104, 195, 169])
    },
    'many files are written at once': async (box) => {
        await box.files.writeFiles([{ path: 'x', data: '1' }, { path: 'd/y', data: new Uint8Array([0, 255]).buffer }])
        assert.deepEqual([...(await box.files.read('d/y', { format: 'bytes' }))], [0, 255])
    },
    'directories are made, listed and removed': async (box) => {
        assert.equal(await box.files.makeDir('d/e'), true)
        assert.equal(await box.files.makeDir('d/e'), false)
        await box.files.write('d/f', '123')
        const list = await box.files.list('d')
        assert.deepEqual(list.map((one) => [one.name, one.type]), [['e', 'dir'], ['f', 'file']])
        assert.equal(list[1].size, 3)
        await box.files.remove('d')
        assert.equal(await box.files.exists('d'), false)
    },
    'a file gets another name': async (box) => {
        await box.files.write('one', '1')
        assert.equal((await box.files.rename('one', 'two')).path, '/home/user/two')
        assert.equal(await box.files.exists('one'), false)
    },
    'info of a file and of a link': async (box) => {
        await box.files.write('target', '1')
        await box.commands.run('ln -s target link')
        assert.equal((await box.files.getInfo('link')).symlinkTarget, '/home/user/target')
        assert.equal((await box.files.getInfo('target')).owner, 'user')
    },
    'a file that is not there is not found': async (box) => {
        await rejects(box.files.read('no'), sdk.NotFoundError)
        await rejects(box.files.list('no'), sdk.NotFoundError)
    },
    'a directory is watched': async (box) => {
        await box.files.makeDir('w')
        const seen = []
        const watch = await box.files.watchDir('w', (event) => seen.push(event), { recursive: true })
        await box.files.write('w/x', '1')
        await until(async () => seen.some((event) => event.name === 'x' && event.type === 'write'))
        await watch.stop()
    },
    'signed URLs give and take a file': async (box) => {
        await box.files.write('signed', 'secret')
        const get = await fetch(await box.downloadUrl('signed', { useSignatureExpiration: 60000 }))
        assert.equal(await get.text(), 'secret')
        const form = new FormData()
        form.append('file', new Blob(['new']), 'signed')
        assert.equal((await fetch(await box.uploadUrl('signed'), { method: 'POST', body: form })).status, 200)
        assert.equal(await box.files.read('signed'), 'new')
        const expired = await fetch(await box.downloadUrl('signed', { useSignatureExpiration: -60000 }))
        assert.equal(expired.status, 401)
        const forged = (await box.downloadUrl('signed')).replace('path=signed', 'path=other')
        assert.equal((await fetch(forged)).status, 401)
    },
    'metadata of a file': async (box) => {
        await box.files.write('m', '1', { metadata: { kind: 'test' } })
        assert.deepEqual((await box.files.getInfo('m')).metadata, { kind: 'test' })
    },
    'a compressed upload': async (box) => {
        await box.files.write('z', 'x'.repeat(100000), { gzip: true })
        assert.equal((await box.files.read('z')).length, 100000)
    },
}

const ports = {
    'a server inside is reached by header': async (box) => {
        await box.commands.run('echo page > index.html; python3 -m http.server 8000', { background: true })
        const ask = (port) => fetch(process.env.E2B_SANDBOX_URL + '/', { headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': port } })
        await until(async () => (await ask('8000')).status === 200)
        assert.equal(await (await ask('8000')).text(), 'page\n')
        const closed = await ask('8001')
        assert.equal(closed.status, 502)
        assert.equal((await closed.json()).message, 'The sandbox is running but port is not open')
    },
    'a port that is not public wants its token': async () => {
        const box = await Sandbox.create({ network: { allowPublicTraffic: false } })
        const ask = (more) => fetch(process.env.E2B_SANDBOX_URL + '/', { headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '8000', ...more } })
        assert.equal((await ask({})).status, 403)
        assert.equal((await ask({ 'e2b-traffic-access-token': box.trafficAccessToken })).status, 502)
        await box.kill()
    },
}

const interpreter = {
    'the value of the last expression': async (box) => assert.equal((await box.runCode('x = 1; x')).text, '1'),
    'state stays, and contexts have their own': async (box) => {
        await box.runCode('x = 1')
        assert.equal((await box.runCode('x += 1; x')).text, '2')
        const context = await box.createCodeContext()
        assert.equal((await box.runCode('x', { context })).error.name, 'NameError')
    },
    'contexts are listed, restarted and removed': async (box) => {
        const context = await box.createCodeContext({ language: 'python', cwd: '/tmp' })
        const all = await box.listCodeContexts()
        assert.equal(all.at(-1).id, context.id)
        assert.deepEqual(['javascript', 'python'].filter((name) => all.some((one) => one.language === name)), ['javascript', 'python'])
        assert.equal((await box.runCode('import os; os.getcwd()', { context })).text, '/tmp')
        await box.runCode('x = 1', { context })
        await box.restartCodeContext(context.id)
        assert.equal((await box.runCode('x', { context })).error.value, "name 'x' is not defined")
        await box.removeCodeContext(context.id)
        await assert.rejects(box.runCode('1', { context }))
    },
    'output comes line by line, with its results': async (box) => {
        const seen = []
        const done = await box.runCode("import sys\nprint(1)\nprint(2, file=sys.stderr)\ndisplay({'text/html': '<b>'}, raw=True)\n'it'",
            { onStdout: (one) => seen.push(one.line), onStderr: (one) => seen.push(one.line), onResult: (one) => seen.push(one.html ?? one.text) })
        assert.deepEqual(done.logs, { stdout: ['1\n'], stderr: ['2\n'] })
        assert.deepEqual([...seen].sort(), ['1\n', '2\n', '<b>', 'it'])
        assert.equal(done.text, 'it')
    },
    'an error has a name, a value and a traceback': async (box) => {
        const { error } = await box.runCode('1 / 0')
        assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero'])
        assert.match(error.traceback, /ZeroDivisionError/)
    },
    'variables are for one run': async (box) => {
        assert.equal((await box.runCode("import os; os.environ['A']", { envs: { A: "it's" } })).text, "it's")
        assert.equal((await box.runCode("os.environ.get('A', 'none')")).text, 'none')
        assert.equal((await box.runCode('2')).executionCount, 3)
    },
    'bash and javascript': async (box) => {
        assert.equal((await box.runCode('echo $A', { language: 'bash', envs: { A: 'b' } })).logs.stdout.join(''), 'b\n')
        assert.equal((await box.runCode("await Promise.resolve('x')", { language: 'js' })).text, 'x')
        assert.equal((await box.runCode("import { join } from 'path'\nconsole.log(join('a', 'b'))", { language: 'js' })).logs.stdout.join(''), 'a/b\n')
    },
    'a shell line and indented code, as in notebooks': async (box) => {
        assert.equal((await box.runCode('!echo hi')).logs.stdout.join(''), 'hi\n')
        assert.equal((await box.runCode('    y = 2\n    y')).text, '2')
    },
    'a timeout interrupts the code, and the next one runs': async (box) => {
        await assert.rejects(box.runCode('import time\nwhile True: time.sleep(1)', { timeoutMs: 1000 }))
        assert.equal((await box.runCode('3')).text, '3')
    },
    'a killed sandbox ends the code': async () => {
        const box = await Class.create()
        const waiting = box.runCode('import time; time.sleep(60)')
        waiting.catch(() => {})
        await pause(500)
        await box.kill()
        await assert.rejects(waiting)
    },
    'typescript': async (box) => assert.equal((await box.runCode('const x: number = 1; console.log(x)', { language: 'ts' })).logs.stdout.join(''), '1\n'),
}

const checks = code ? interpreter : { ...control, ...commands, ...files, ...ports }
const found = {}
const names = Object.keys(checks)
const one = async (name) => {
    const box = checks[name].length ? await Class.create({ timeoutMs: 120000 }) : undefined
    try {
        await Promise.race([checks[name](box), pause(40000).then(() => assert.fail('not within forty seconds'))])
        found[name] = null
    } catch (problem) {
        found[name] = `${problem?.name}: ${problem?.message}`.slice(0, 500)
    } finally {
        await box?.kill().catch(() => {})
    }
}
const worker = async () => { for (let name; (name = names.shift());) await one(name) }
process.on('unhandledRejection', (problem) => { found[`unhandled: ${problem?.message}`] = String(problem?.stack).slice(0, 500) })
await Promise.all([worker(), worker(), worker()])
console.log(JSON.stringify(found))
process.exit(0)
