// SPDX-License-Identifier: Apache-2.0
// Compiles src into dist/esm and dist/cjs.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";

const root = new URL("..", import.meta.url).pathname;
const out = process.argv[2] ?? `${root}/dist`;
const tsc = createRequire(import.meta.url).resolve("typescript/lib/tsc.js");
const compile = (...options) => execFileSync(process.execPath, [tsc, "-p", `${root}/tsconfig.json`, ...options], { stdio: "inherit" });

rmSync(out, { recursive: true, force: true });
compile("--outDir", `${out}/esm`);
compile("--outDir", `${out}/cjs`, "--module", "CommonJS", "--moduleResolution", "Node10");
mkdirSync(`${out}/cjs`, { recursive: true });
writeFileSync(`${out}/cjs/package.json`, '{ "type": "commonjs" }\n');
