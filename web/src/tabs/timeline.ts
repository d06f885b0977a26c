// SPDX-License-Identifier: Apache-2.0
// All that happened in a session, in order: code with its output, images, resets, decisions.

import type { Execution, SessionApi } from "../api";
import { bytes, clock, h, replace, shortDuration, timeTag, usd, type Child } from "../dom";
import { base64Image, fetchImage, imageOf, imageType } from "../preview";
import type { Context, Tab } from "../session";
import { endOf, reasonText } from "../session_view";

interface Shown { data?: Record<string, unknown>; files?: Record<string, { path: string; sha256: string; size: number }> }
interface Entry { sequence: number; type: string; time: string; data: Record<string, any>; execution?: Execution }

const output = (text: string | undefined, kind: string): Child => text ? h("pre", { class: kind, tabindex: text.length > 2000 ? "0" : null, "aria-label": kind }, text) : null;
const hidden = new Set(["execution.started", "sandbox.creating", "execution.queued"]);

const plain: Record<string, (data: Record<string, any>) => string> = {
  "session.created": () => "The session began", "sandbox.ready": data => `A sandbox is ready${data.flavor ? ` (${data.flavor})` : ""}${data.generation > 1 ? `, incarnation ${data.generation}` : ""}`,
  "sandbox.destroyed": data => `The sandbox is gone${data.reason ? `: ${data.reason}` : ""}`, "sandbox.evicted": () => "The sandbox was evicted: its place was needed",
  "sandbox.crashed": data => `The sandbox crashed${data.reason ? `: ${data.reason}` : ""}`, "sandbox.reset": data => data.files === "restored" ? "A new sandbox has the files that were kept" : "Files were reset: this is a new sandbox",
  "session.paused": () => "Paused", "session.resumed": () => "Resumed", "session.ended": data => `The session ended. ${reasonText(data.reason ?? null)}`,
  "approval.requested": data => `Asked for ${data.flavor}${data.price_per_hour ? ` (${usd(data.price_per_hour)} an hour)` : ""}`,
  "approval.decided": data => `${data.state === "approved" ? "Approved" : "Denied"}: ${data.flavor}${data.decided_by ? ` by ${data.decided_by}` : ""}${data.decision_reason ? ` (${data.decision_reason})` : ""}`,
  "approval.expired": data => `Nobody decided about ${data.flavor} in time`, "budget.charged": data => `Charged ${usd(data.charged_usd)}`,
  "budget.threshold": data => `${usd(data.spent_usd ?? data.threshold_usd)} are spent`, "budget.exhausted": () => "The budget is used up",
};

function executionCard(entry: Entry): HTMLElement {
  const one = entry.execution!, request = one.request ?? {}, code = request.code ?? request.command ?? request.argv?.join(" ") ?? "";
  const failed = one.state !== "exited" || one.exit_code !== 0;
  return h("div", { class: "cell-run" }, h("div", { class: "run-head" }, h("span", { class: "lang" }, request.language ?? (request.argv ? "program" : "shell")),
    h("span", { class: "state", "data-state": failed ? "failed" : "exited" }, endOf(one)), one.duration_seconds !== null ? h("span", { class: "muted" }, shortDuration(one.duration_seconds)) : null),
    code ? h("pre", { class: "code", tabindex: code.length > 2000 ? "0" : null }, code.replace(/^\s*\n/, "")) : null, output(one.stdout, "stdout"), output(one.stderr, "stderr"),
    one.truncated ? h("p", { class: "muted" }, `The middle is left out: ${bytes(one.stdout_bytes + one.stderr_bytes)} in all.`) : null, one.error ? h("p", { class: "problem" }, one.error.message) : null);
}

/** What a value shows itself as: the best that this page can show. */
export function bundle(data: Record<string, unknown>): HTMLElement | null {
  for (const type of ["image/png", "image/jpeg", "image/gif", "image/webp"]) if (typeof data[type] === "string") return base64Image(data[type] as string, type, String(data["text/plain"] ?? "plot"));
  if (typeof data["image/svg+xml"] === "string") return base64Image(btoa(String.fromCharCode(...new TextEncoder().encode(data["image/svg+xml"] as string))), "image/svg+xml", "drawing");
  const text = data["text/plain"] ?? data["text/markdown"] ?? data["application/json"];
  return text === undefined ? null : h("pre", { class: "result" }, typeof text === "string" ? text : JSON.stringify(text));
}

/** A result of the history, whose large contents are files of the context's execution. */
function result(api: SessionApi, one: Shown): HTMLElement | null {
  for (const type of ["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]) {
    const file = one.files?.[type];
    if (!file) continue;
    const frame = h("div", { class: "images" });
    void api.send("GET", "/" + file.path.split("/").slice(5).join("/")).then(answer => answer.arrayBuffer()).then(data => frame.append(imageOf(data, type, String(one.data?.["text/plain"] ?? "plot"))))
      .catch(() => frame.append(h("p", { class: "muted" }, "This picture is not kept any more.")));
    return frame;
  }
  return one.data ? bundle(one.data) : null;
}

function contextCard(api: SessionApi, entry: Entry): HTMLElement {
  const data = entry.data, failed = data.state !== "ok";
  const shown = (data.results ?? (data.result ? [data.result] : [])) as Shown[];
  const error = data.error as { traceback?: string | string[]; value?: string; name?: string } | undefined;
  const trace = Array.isArray(error?.traceback) ? error.traceback.join("\n") : error?.traceback ?? error?.value;
  return h("div", { class: "cell-run" }, h("div", { class: "run-head" }, h("span", { class: "lang" }, data.language), h("span", { class: "state", "data-state": failed ? "failed" : "exited" }, data.state),
    h("span", { class: "muted" }, shortDuration(data.duration_seconds ?? 0))), h("pre", { class: "code" }, data.code ?? ""), output(data.stdout, "stdout"), output(data.stderr, "stderr"),
    shown.map(one => result(api, one)), data.results_left_out ? h("p", { class: "muted" }, `${data.results_left_out} more results were too large to be kept.`) : null, trace ? h("pre", { class: "stderr" }, trace) : null);
}

export async function timelineTab(context: Context): Promise<Tab> {
  const list = h("ol", { class: "timeline" }), older = h("button", { hidden: true }), nothing = h("div");
  const element = h("div", null, nothing, list, older);
  const seen = new Set<number>();
  let cursor: string | number | null = null, soon = 0, isLoading = false;

  function filesCard(files: { name: string; size: number }[]): HTMLElement {
    const images = h("div", { class: "images" });
    if (context.session().state !== "ended" && context.session().sandbox.state !== "none")
      for (const file of files.filter(one => imageType(one.name)).slice(0, 6)) void fetchImage(context.api, file.name).then(image => { if (image) images.append(h("figure", null, image, h("figcaption", null, file.name))); });
    return h("div", null, h("p", null, "Files: ", files.map((file, at) => [at ? ", " : "", h("a", { href: `#/s/${context.api.id}/files` }, file.name), h("span", { class: "muted" }, ` ${bytes(file.size)}`)])), images);
  }

  function contentOf(entry: Entry): Child {
    if (entry.execution) return executionCard(entry);
    if (entry.type === "context.ran") return contextCard(context.api, entry);
    if (entry.type === "execution.files") return filesCard(entry.data.files ?? []);
    const write = plain[entry.type];
    return h("p", { class: entry.type === "sandbox.crashed" ? "problem" : "" }, write ? write(entry.data ?? {}) : entry.type);
  }

  async function load(): Promise<void> {
    if (isLoading) return;
    isLoading = true;
    try {
      do {
        const page: { entries: Entry[]; next_cursor: string | number | null } = await context.api.get(`/history?limit=100${cursor !== null ? `&cursor=${cursor}` : ""}`);
        for (const entry of page.entries) {
          if (seen.has(entry.sequence) || hidden.has(entry.type)) continue;
          seen.add(entry.sequence);
          list.prepend(h("li", { "data-type": entry.type }, timeTag(entry.time, clock(entry.time)), h("div", { class: "what" }, contentOf(entry))));
        }
        if (page.next_cursor !== null) cursor = page.next_cursor;
        else break;
      } while (seen.size < 5000);
      replace(nothing, seen.size > 2 || list.children.length > 2 ? null : h("p", { class: "muted" }, "Nothing has run yet. The ", h("a", { href: `#/s/${context.api.id}/scratch` }, "scratch pad"), " runs Python and bash here."));
    } finally {
      isLoading = false;
    }
  }
  await load();
  return { element, close: () => clearTimeout(soon), onEvent: () => { if (!soon) soon = window.setTimeout(() => { soon = 0; void load().catch(() => undefined); }, 200); } };
}
