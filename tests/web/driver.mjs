// SPDX-License-Identifier: Apache-2.0
// A Chromium for tests in another language: each line of the input is {"id", "code", "arguments"}, where the code is the body of an
// async function with `browser`, `pages` (by name), `open(name, options)` and `args`. Each line of the output is {"id", "value" | "error"}.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const modules = process.env.NODE_MODULES;
const { chromium } = createRequire(`${modules}/`)(`${modules}/playwright-core`);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
const pages = {}, problems = {};

/** A page in a context of its own: other cookies. What goes wrong in it is noted. */
async function open(name, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(15000);
  const page = await context.newPage();
  problems[name] = [];
  page.on("pageerror", error => problems[name].push(`error: ${error}`));
  page.on("console", message => { if (/Content Security Policy|Refused to/.test(message.text())) problems[name].push(message.text()); });
  page.on("request", request => { if (options.origin && !request.url().startsWith(options.origin) && !/^(data|blob):/.test(request.url())) problems[name].push(`asked ${request.url()}`); });
  pages[name] = page;
  return page;
}

async function axe(page) {
  const { readFileSync } = await import("node:fs");
  // By the debugger, not as a script of the page: the page's policy forbids those.
  await page.evaluate(readFileSync(`${modules}/axe-core/axe.min.js`, "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter(one => ["serious", "critical"].includes(one.impact)).map(one => ({ id: one.id, help: one.help, nodes: one.nodes.slice(0, 5).map(node => `${node.html.slice(0, 200)} ${node.failureSummary.slice(0, 300)}`) }));
}

const AsyncFunction = (async () => undefined).constructor;
console.log(JSON.stringify({ id: 0, value: browser.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const { id, code, args } = JSON.parse(line);
  try {
    const value = await new AsyncFunction("browser", "pages", "problems", "open", "axe", "args", "page", code)(browser, pages, problems, open, axe, args, pages[args?.page ?? "main"]);
    console.log(JSON.stringify({ id, value: value ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ id, error: String(error.stack ?? error) }));
  }
}
await browser.close();
