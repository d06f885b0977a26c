// SPDX-License-Identifier: Apache-2.0
// The provider of ComputeSDK, which stands on the client of E2B. Prints what it found.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const resolve = createRequire(process.env.NODE_MODULES + '/x').resolve
const { e2b } = await import(pathToFileURL(resolve('@computesdk/e2b')).href)
const sandbox = await e2b({ apiKey: process.env.E2B_API_KEY }).sandbox.create()
const { stdout, exitCode } = await sandbox.runCommand('echo hi; exit 3')
await sandbox.filesystem.writeFile('/home/user/a.txt', 'x')
const text = await sandbox.filesystem.readFile('/home/user/a.txt')
const names = (await sandbox.filesystem.readdir('/home/user')).map((entry) => entry.name)
await sandbox.destroy()
console.log(JSON.stringify({ stdout, exitCode, text, names }))
process.exit(0)
