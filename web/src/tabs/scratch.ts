// SPDX-License-Identifier: Apache-2.0
// The scratch pad: code in an interpreter that keeps its state, with output and plots as they come.

import { events, explain } from "../api";
import { empty, h, replace, shortDuration } from "../dom";
import type { Context, Tab } from "../session";
import { bundle } from "./timeline";

const examples: Record<string, string> = {
  python: "import sys, platform\nprint(platform.node(), sys.version.split()[0])\nsum(n * n for n in range(1000))", bash: "uname -a\nls -la\ndf -h . | tail -1", javascript: "console.log(process.version); 6 * 7",
};

export function scratchTab(context: Context): Tab {
  if (context.session().state === "ended") return { element: empty("The session has ended: nothing can run in it any more.", "Its timeline shows what did.") };
  const language = h("select", { "aria-label": "Language" }, ["python", "bash", "javascript"].map(name => h("option", { value: name }, name)));
  const code = h("textarea", { class: "code-input", rows: "8", spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-label": "Code" });
  const run = h("button", { class: "primary", onclick: () => void start() }, "Run"), stop = h("button", { class: "danger", hidden: true, onclick: () => void interrupt() }, "Stop");
  const status = h("span", { class: "muted", role: "status" }), results = h("div", { class: "results" });
  const element = h("div", { class: "scratch" }, h("div", { class: "bar-row" }, language, run, stop, status, h("span", { class: "muted hint" }, h("kbd", null, "Ctrl"), "+", h("kbd", null, "Enter"), " runs; variables stay between runs")), code, results);
  const contexts = new Map<string, string>();
  let isRunning = false, abort: AbortController | null = null;
  code.value = examples.python!;
  language.addEventListener("change", () => { if (Object.values(examples).includes(code.value)) code.value = examples[language.value]!; });

  async function contextOf(name: string): Promise<string> {
    const known = contexts.get(name);
    if (known) return known;
    const made = await context.api.call<{ id: string }>("POST", "/contexts", { body: { language: name } });
    contexts.set(name, made.id);
    return made.id;
  }

  function piece(card: HTMLElement, kind: string, text: string): void {
    const last = card.lastElementChild;
    if (last?.tagName === "PRE" && last.classList.contains(kind)) last.append(text);
    else card.append(h("pre", { class: kind }, text));
  }

  function take(card: HTMLElement, name: string, data: any): void {
    if (name === "stdout" || name === "stderr") piece(card, name, data.text ?? "");
    else if (name === "display" || name === "result") { const shown = bundle(data.data ?? {}); if (shown) card.append(shown); }
    else if (name === "error") piece(card, "stderr", Array.isArray(data.traceback) ? data.traceback.join("\n") : data.traceback ?? `${data.name}: ${data.value}`);
    else if (name === "done") {
      const end = `${data.state}${data.exit_code !== null && data.exit_code !== undefined ? `, exit ${data.exit_code}` : ""} · ${shortDuration(data.duration_seconds ?? 0)}`;
      card.dataset.state = data.state === "ok" ? "ok" : "failed";
      card.append(h("p", { class: "muted" }, end));
    }
  }

  async function start(): Promise<void> {
    const text = code.value, name = language.value;
    if (isRunning || !text.trim()) return;
    isRunning = true;
    run.disabled = true;
    stop.hidden = false;
    status.textContent = "running…";
    const card = h("article", { class: "cell-run", "aria-label": "Run" }, h("pre", { class: "code" }, text));
    results.prepend(card);
    abort = new AbortController();
    try {
      const id = await contextOf(name);
      const answer = await context.api.send("POST", `/contexts/${id}/run`, { body: { code: text }, headers: { Accept: "text/event-stream" }, signal: abort.signal });
      for await (const event of events(answer)) take(card, event.event, JSON.parse(event.data));
    } catch (error) {
      contexts.delete(name);
      card.dataset.state = "failed";
      card.append(h("p", { class: "problem" }, explain(error)));
    }
    isRunning = false;
    run.disabled = false;
    stop.hidden = true;
    status.textContent = "";
  }

  async function interrupt(): Promise<void> {
    const id = contexts.get(language.value);
    if (id) await context.api.call("POST", `/contexts/${id}/interrupt`, { body: {} }).catch(() => abort?.abort());
  }

  code.addEventListener("keydown", event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); void start(); } });
  replace(results);
  return { element, close: () => abort?.abort() };
}
