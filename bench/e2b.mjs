// SPDX-License-Identifier: Apache-2.0
// Sandbox.create() and commands.run("true") with the published client of E2B, in turns against a daemon, against a server that does nothing
// (ALONE_URL: what the client costs by itself) and F0 (posix_spawn and wait of /bin/true, by the program that the first argument names).
// Prints one line of JSON: the times in milliseconds.
import { execFileSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { performance } from 'node:perf_hooks'

const { Sandbox } = createRequire(`${process.env.NODE_MODULES}/`)('e2b')
const [spawn, rounds, warmUp] = [process.argv[2], Number(process.argv[3]), 40]
const times = { f0: [], create: [], run: [], both: [], kill: [], 'client alone: create': [], 'client alone: run': [], 'client alone: both': [] }

async function once(options, note) {
  const begin = performance.now()
  const sandbox = await Sandbox.create(options)
  const created = performance.now()
  const result = await sandbox.commands.run('true')
  const ran = performance.now()
  if (result.exitCode !== 0) throw new Error(`exit code ${result.exitCode}`)
  await sandbox.kill()
  note(created - begin, ran - created, ran - begin, performance.now() - ran)
}

const add = (prefix) => (create, run, both, kill) => {
  times[`${prefix}create`].push(create)
  times[`${prefix}run`].push(run)
  times[`${prefix}both`].push(both)
  times[`${prefix}kill`]?.push(kill)
}
const forget = () => {}

for (let round = 0; round < warmUp + rounds; round++) {
  // Starting a program from here costs the client its caches: not in every round.
  if (round >= warmUp && round % 5 === 0) times.f0.push(Number(execFileSync(spawn, ['-c', process.argv[4]], { encoding: 'utf8' })))
  await once({}, round < warmUp ? forget : add(''))
  await once({ apiUrl: process.env.ALONE_URL, sandboxUrl: process.env.ALONE_URL }, round < warmUp ? forget : add('client alone: '))
}
console.log(JSON.stringify(times))
