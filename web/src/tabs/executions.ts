// SPDX-License-Identifier: Apache-2.0
// The programs of a session: what they were, how they ended, and their output while they run.

import { explain, type Execution } from "../api";
import { bytes, clock, empty, h, replace, setText, shortDuration, timeTag, toast } from "../dom";
import { followOutput, type Follower } from "../output";
import type { Context, Tab } from "../session";
import { commandOf, endOf } from "../session_view";

const SHOWN = 1024 * 1024; // characters of output in the page at once

export async function executionsTab(context: Context): Promise<Tab> {
  const list = h("ul", { class: "execution-list" }), output = h("pre", { class: "output", tabindex: "0", "aria-label": "Output" }), facts = h("div", { class: "execution-facts" });
  const detail = h("section", { class: "execution-detail", "aria-label": "Execution", hidden: true }, facts, output);
  const more = h("button", { hidden: true, onclick: () => void load(next) }, "Show older ones");
  const nothing = h("div");
  const element = h("div", { class: "executions" }, h("div", null, nothing, list, more), detail);
  let next: number | null = null, all: Execution[] = [], chosen: string | null = null, follower: Follower | null = null, decoder = new TextDecoder(), soon = 0;

  async function load(cursor: number | null): Promise<void> {
    const page = await context.api.get<{ executions: Execution[]; next_cursor: number | null }>(`/executions?limit=50${cursor ? `&cursor=${cursor}` : ""}`);
    all = cursor ? [...all, ...page.executions] : [...page.executions, ...all.slice(page.executions.length)].filter((one, at, list) => list.findIndex(other => other.id === one.id) === at);
    if (cursor || all.length <= 50) next = page.next_cursor;
    fill();
  }

  function fill(): void {
    more.hidden = !next;
    replace(nothing, all.length ? null : empty("Nothing has run in this session.", "Run something in the ", h("a", { href: `#/s/${context.api.id}/scratch` }, "scratch pad"), " or the ",
      h("a", { href: `#/s/${context.api.id}/terminal` }, "terminal"), "."));
    replace(list, all.map(one => h("li", null, h("button", { class: "execution", "aria-pressed": String(one.id === chosen), onclick: () => show(one) },
      h("span", { class: "state", "data-state": one.state === "exited" && one.exit_code !== 0 ? "failed" : one.state }, one.ended_at ? endOf(one) : one.state),
      h("code", { class: "command" }, commandOf(one)), h("span", { class: "muted" }, timeTag(one.created_at, clock(one.created_at)), one.duration_seconds !== null ? ` · ${shortDuration(one.duration_seconds)}` : "")))));
    const current = all.find(one => one.id === chosen);
    if (current) fillFacts(current);
  }

  function fillFacts(one: Execution): void {
    const text = one.request?.code ?? one.request?.command ?? one.request?.argv?.join(" ") ?? "";
    replace(facts, h("div", { class: "bar-row" }, h("h2", null, one.ended_at ? endOf(one) : one.state), h("span", { class: "muted" },
      [one.id, one.cpu_seconds !== null && one.cpu_seconds !== undefined ? `${one.cpu_seconds.toFixed(2)} s cpu` : "", one.max_memory_bytes ? `${bytes(one.max_memory_bytes)} at most` : "", `${bytes(one.stdout_bytes + one.stderr_bytes)} written`].filter(Boolean).join(" · ")),
      one.ended_at ? null : h("button", { class: "danger", onclick: () => void cancel(one) }, "Cancel")),
      text ? h("pre", { class: "code", tabindex: "0", "aria-label": "Code" }, text) : null, one.error ? h("p", { class: "problem" }, one.error.message) : null);
  }

  async function cancel(one: Execution): Promise<void> {
    try { await context.api.call("DELETE", `/executions/${one.id}?wait_seconds=0`); toast("Cancelled"); } catch (error) { toast(explain(error), "error"); }
    await load(null);
  }

  function add(text: string): void {
    const isAtEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 30;
    output.append(text);
    if ((output.textContent?.length ?? 0) > SHOWN) output.textContent = output.textContent!.slice(-SHOWN / 2);
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  }

  function show(one: Execution): void {
    chosen = one.id;
    detail.hidden = false;
    follower?.stop();
    decoder = new TextDecoder();
    setText(output, "");
    fill();
    follower = followOutput(context.api, one, one.request?.tty ? "stdout" : "merged", -1, {
      onBytes: data => add(decoder.decode(data, { stream: true }).replace(/\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07/g, "")),
      onSkip: count => add(`… ${bytes(count)} before this …\n`),
      onEnd: () => { if (!output.textContent) add("(no output)"); void load(null).catch(() => undefined); },
    });
  }

  await load(null);
  const running = all.find(one => !one.ended_at && !one.request?.context) ?? all[0];
  if (running) show(running);
  return { element, close: () => { follower?.stop(); clearTimeout(soon); },
    onEvent: event => { if (event.type.startsWith("execution.") && !soon) soon = window.setTimeout(() => { soon = 0; void load(null).catch(() => undefined); }, 200); } };
}
