// SPDX-License-Identifier: Apache-2.0
// Bundles src/ into TARGET: hashed names, and index.html that names them. Called by ./build.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";

const [modules, target] = process.argv.slice(2);
const here = new URL(".", import.meta.url).pathname;
const esbuild = createRequire(join(modules, "package.json"))(join(modules, "esbuild"));

const result = await esbuild.build({
  entryPoints: [{ in: join(here, "src/main.ts"), out: "app" }, { in: join(here, "src/style.css"), out: "style" }],
  bundle: true, minify: true, splitting: true, format: "esm", target: ["es2022"], charset: "utf8", metafile: true,
  outdir: target, entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]", nodePaths: [modules], legalComments: "none", logLevel: "warning",
});

const icon = readFileSync(join(here, "src/icon.svg"));
const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
writeFileSync(join(target, iconName), icon);

const names = { "{{icon}}": iconName };
for (const [path, output] of Object.entries(result.metafile.outputs)) {
  if (output.entryPoint?.endsWith("main.ts")) names["{{script}}"] = basename(path);
  if (output.entryPoint?.endsWith("style.css")) names["{{style}}"] = basename(path);
}
let page = readFileSync(join(here, "src/index.html"), "utf8");
for (const [mark, name] of Object.entries(names)) page = page.replaceAll(mark, name);
if (page.includes("{{")) throw new Error("index.html names a file that was not made");
writeFileSync(join(target, "index.html"), page);
// CSS that a lazy chunk imports would become a file that nobody names: all styles belong to style.css.
const strays = readdirSync(target).filter(name => name.endsWith(".css") && name !== names["{{style}}"]);
if (strays.length) throw new Error(`import ${strays} in style.css`);
