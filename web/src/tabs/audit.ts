// SPDX-License-Identifier: Apache-2.0
// Lines of the audit log about this session.

import { ApiError } from "../api";
import { clock, empty, h, replace, timeTag } from "../dom";
import type { Context, Tab } from "../session";

interface Entry { seq: number; type: string; time: string; principal?: string; owner?: string; peer?: string; method?: string; route?: string; status?: number; data?: Record<string, unknown>; body?: unknown; hash: string }

function whatOf(entry: Entry): string {
  if (entry.type === "request") return `${entry.method} ${entry.route ?? ""}`;
  const data = entry.data ?? {};
  return [data.reason, data.state, data.exit_code !== undefined && data.exit_code !== null ? `exit ${data.exit_code}` : "", data.execution_id].filter(Boolean).join(" · ");
}

export async function auditTab(context: Context): Promise<Tab> {
  const element = h("div", { class: "audit" });
  async function load(): Promise<void> {
    try {
      const { entries } = await context.api.get<{ entries: Entry[] }>("/audit");
      if (!entries.length) { replace(element, empty("The audit log says nothing about this session yet.")); return; }
      replace(element, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Audit entries" }, h("table", { class: "plain-table" },
        h("thead", null, h("tr", null, ["Line", "Time", "What", "Who", "From", "Result"].map(name => h("th", { scope: "col" }, name)))),
        h("tbody", null, entries.reverse().map(entry => h("tr", null, h("td", { title: `hash ${entry.hash}` }, entry.seq), h("td", null, timeTag(entry.time, clock(entry.time))),
          h("td", null, h("strong", null, entry.type === "request" ? "" : `${entry.type} `), whatOf(entry)), h("td", null, entry.principal || entry.owner || "–"), h("td", null, entry.peer ?? "–"),
          h("td", null, entry.status ?? "")))))));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      replace(element, empty(error.code === "admin_required" ? "Only administrators read the audit log." : error.message, error.hint));
    }
  }
  await load();
  let soon = 0;
  return { element, onEvent: () => { if (!soon) soon = window.setTimeout(() => { soon = 0; void load(); }, 400); }, close: () => clearTimeout(soon) };
}
