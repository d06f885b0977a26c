// SPDX-License-Identifier: Apache-2.0
// Which clock ends the session, what it may spend, and what was asked for.

import { decide, extend, mayDecide } from "../actions";
import { explain, get, type Approval } from "../api";
import { ask, dateAndTime, duration, h, replace, toast, usd } from "../dom";
import { Hourglass } from "../hourglass";
import type { Context, Tab } from "../session";

interface Budget {
  auto_approve: boolean; cap_usd: number | null; spent_usd: number; reserved_usd: number; remaining_usd: number | null; approved_flavors: string[];
  meter: unknown; owner: { owner: string; cap_usd: number | null; spent_usd: number };
}

function clockCard(name: string, text: string, left: number | null, total: number | null, isNext: boolean): HTMLElement {
  const glass = new Hourglass(44);
  glass.set(left === null ? null : total ? left / Math.max(total, left) : 1, left);
  return h("li", { class: isNext ? "clock next" : "clock" }, glass.element, h("div", null, h("strong", null, name, isNext ? h("span", { class: "tag" }, "ends it") : null),
    h("p", null, left === null ? "off" : `in ${duration(left)}${total ? ` of ${duration(total)}` : ""}`), h("p", { class: "muted" }, text)));
}

export async function clocksTab(context: Context): Promise<Tab> {
  const clocks = h("ul", { class: "clocks" }), money = h("div"), asked = h("ul", { class: "needs" });
  const element = h("div", { class: "clocks-tab" }, h("h2", null, "Clocks"), clocks, h("h2", null, "Money"), money, asked);

  function fillClocks(): void {
    const session = context.session(), next = session.time_remaining_clock;
    if (session.state === "ended") { replace(clocks, h("li", null, `It ended at ${dateAndTime(session.ended_at)}.`)); return; }
    replace(clocks, clockCard("Lease", "set and extended by the caller", session.lease_remaining_seconds, session.lease_seconds, next === "lease"),
      clockCard("Idle", "since the last real use; looking is no use", session.idle_remaining_seconds, session.idle_timeout_seconds, next === "idle"),
      clockCard("Lifetime", "since it began, whatever happens", session.lifetime_remaining_seconds, session.max_lifetime_seconds, next === "lifetime"),
      h("li", { class: "clock" }, h("button", { onclick: () => void extend(session).then(context.refresh) }, "Extend")));
  }

  async function change(body: Record<string, unknown>): Promise<void> {
    try { await context.api.call("PATCH", "/budget", { body }); await fillMoney(); } catch (error) { toast(explain(error), "error"); }
  }

  async function askCap(budget: Budget): Promise<void> {
    const input = h("input", { type: "number", min: "0", step: "0.01", value: budget.cap_usd ?? 0, autofocus: true, "aria-label": "Cap in dollars" });
    if (await ask("Cap of this session, in dollars", input, [{ value: "", label: "Cancel" }, { value: "set", label: "Set", kind: "primary" }]) === "set") await change({ cap_usd: Number(input.value) });
  }

  async function fillMoney(): Promise<void> {
    const session = context.session();
    if (session.state === "ended") { replace(money, h("p", null, `${usd(session.spent_usd)} were spent.`)); return; }
    const budget = await context.api.get<Budget>("/budget"), cap = budget.cap_usd;
    const meter = h("meter", { min: "0", max: String(cap || 1), high: String((cap || 1) * 0.8), value: String(budget.spent_usd + budget.reserved_usd), "aria-label": "Spent and reserved of the cap" });
    replace(money, h("div", { class: "money" }, h("p", { class: "big" }, usd(budget.spent_usd), h("small", null, cap === null ? " spent, no cap" : ` spent of ${usd(cap)}`)), meter,
      h("dl", { class: "facts" }, h("dt", null, "Reserved"), h("dd", null, usd(budget.reserved_usd)), h("dt", null, "Flavor"), h("dd", null, `${session.flavor} (${session.choice})`),
        h("dt", null, "Approved for this session"), h("dd", null, budget.approved_flavors.join(", ") || "none"), h("dt", null, "Owner"), h("dd", null, `${usd(budget.owner.spent_usd)} spent${budget.owner.cap_usd === null ? ", no cap" : ` of ${usd(budget.owner.cap_usd)}`}`)),
      mayDecide() ? h("div", { class: "buttons left" }, h("button", { onclick: () => void askCap(budget) }, "Change the cap"),
        h("button", { "aria-pressed": String(budget.auto_approve), onclick: () => void change({ auto_approve: !budget.auto_approve }) }, budget.auto_approve ? "Ask before spending" : "Approve automatically under the cap")) : null));
  }

  async function fillAsked(): Promise<void> {
    const { approvals } = await get<{ approvals: Approval[] }>(`api/v1/approvals?session_id=${context.api.id}`, { owner: context.api.owner });
    replace(asked, approvals.map(one => h("li", { class: `need ${one.state === "pending" ? "approval" : ""}` },
      h("div", { class: "need-text" }, h("strong", null, `${one.flavor}: ${one.state}`), h("span", null, one.result ?? one.question)),
      one.state === "pending" && mayDecide() ? h("div", { class: "buttons" }, (["once", "session", "deny"] as const).map(choice =>
        h("button", { class: choice === "deny" ? "danger" : "", onclick: () => void decide(one, choice).then(fillAsked) }, choice === "once" ? "Once" : choice === "session" ? "For the session" : "Deny"))) : null)));
  }

  fillClocks();
  await Promise.all([fillMoney(), fillAsked()]);
  const timer = setInterval(fillClocks, 5000);
  return { element, close: () => clearInterval(timer), onSession: () => { fillClocks(); void fillMoney().catch(() => undefined); },
    onEvent: event => { if (/^(approval|budget)\./.test(event.type)) void fillAsked().catch(() => undefined); } };
}
