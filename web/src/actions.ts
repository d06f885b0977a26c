// SPDX-License-Identifier: Apache-2.0
// What can be done with a session from any screen: extend, end, why, new.

import { SessionApi, explain, get, me, type Approval, type Session } from "./api";
import { ask, bytes, duration, h, toast, usd } from "./dom";
import { nameOf, whyText, type Row } from "./session_view";
import { call } from "./api";

export const apiOf = (session: Session): SessionApi => new SessionApi(session.id, session.owner);

/** By half an hour, or as long as its lease was. */
export async function extend(session: Session): Promise<void> {
  const seconds = Math.max(1800, session.lease_seconds ?? 0);
  try {
    const after = await apiOf(session).call<Session>("POST", "/keepalive", { body: session.lease_seconds === null ? {} : { lease_seconds: seconds } });
    toast(`${nameOf(session)}: ${after.time_remaining_seconds === null ? "no clock ends it" : `ends in ${duration(after.time_remaining_seconds)} (${after.time_remaining_clock})`}`);
  } catch (error) {
    toast(explain(error), "error");
  }
}

export async function end(session: Session): Promise<boolean> {
  const answer = await ask(`End ${nameOf(session)}?`,
    [h("p", null, "Its sandbox is removed with everything that runs in it", session.keep_files ? "; its files are kept until retention." : " and all of its files."),
      session.executions.running ? h("p", { class: "warn" }, `${session.executions.running} running now.`) : null],
    [{ value: "", label: "Cancel" }, { value: "end", label: "End it", kind: "danger" }]);
  if (answer !== "end") return false;
  try {
    await apiOf(session).call("DELETE", "");
    toast(`${nameOf(session)} has ended`);
    return true;
  } catch (error) {
    toast(explain(error), "error");
    return false;
  }
}

export async function why(row: Row): Promise<void> {
  const { ends, extended, others } = whyText(row);
  const answer = await ask(`Why does ${nameOf(row.session)} end?`,
    [h("p", null, ends), h("p", null, `Extended by: ${extended}.`), others.length ? h("ul", null, others.map(line => h("li", null, line))) : null],
    [{ value: "", label: "Close" }, ...row.session.state === "ended" ? [] : [{ value: "extend", label: "Extend", kind: "primary" }]]);
  if (answer === "extend") await extend(row.session);
}

export async function decide(approval: Approval, decision: "once" | "session" | "deny"): Promise<void> {
  try {
    await call("POST", `api/v1/approvals/${approval.id}`, {
      owner: approval.owner, body: decision === "deny" ? { decision: "deny" } : { decision: "approve", ...decision === "session" ? { session: true } : {} } });
    toast(decision === "deny" ? `Denied: ${approval.flavor}` : `Approved: ${approval.flavor}, ${decision === "once" ? "for one sandbox" : "for the session"}`);
  } catch (error) {
    toast(explain(error), "error");
  }
}

export const mayDecide = (): boolean => me.auth_mode === "none" || me.roles.includes("approver") || me.roles.includes("admin");

// --- a new session --------------------------------------------------------------------------------

interface Flavor { name: string; price_per_hour: number | null; needs_approval: boolean; default: boolean; available: boolean; memory_bytes: number; cpus: number; reason: string | null }

const field = (label: string, control: HTMLElement, note?: string): HTMLElement =>
  h("label", { class: "field" }, h("span", null, label), control, note ? h("small", null, note) : null);

async function choices(): Promise<{ templates: { name: string; default: boolean }[]; flavors: Flavor[] }> {
  const [templates, flavors] = await Promise.all([get<{ templates: { name: string; default: boolean }[] }>("api/v1/templates"),
    get<{ flavors: Flavor[] }>("api/v1/flavors")]);
  return { templates: templates.templates, flavors: flavors.flavors };
}

/** A flavor that costs something is asked for afterwards: no session begins with it. */
async function openSession(form: Record<string, string>, flavor: Flavor | undefined): Promise<Session> {
  const body: Record<string, unknown> = {};
  for (const name of ["key", "template", "memory_bytes", "network", "lease_seconds", "idle_timeout_seconds"]) if (form[name]) body[name] = form[name];
  if (form.cpus) body.cpus = Number(form.cpus);
  const costs = flavor && (flavor.needs_approval || flavor.price_per_hour !== 0);
  if (flavor && !flavor.default && !costs) body.flavor = flavor.name;
  if (form.keep_files) body.keep_files = true;
  const session = await call<Session>("POST", "api/v1/sessions", { body });
  if (costs) {
    const answer = await apiOf(session).call<{ message?: string }>("POST", "/sandbox", { body: { flavor: flavor.name } });
    if (answer.message) toast(answer.message);
  }
  return session;
}

export async function createSession(): Promise<void> {
  let lists: Awaited<ReturnType<typeof choices>>;
  try { lists = await choices(); } catch (error) { toast(explain(error), "error"); return; }
  const option = (value: string, label: string, isDefault: boolean, disabled = false): HTMLElement =>
    h("option", { value, selected: isDefault, disabled }, label);
  const priceOf = (flavor: Flavor): string => flavor.price_per_hour === null ? "price unknown" : flavor.price_per_hour ? `${usd(flavor.price_per_hour)}/h` : "free";
  const content = h("div", { class: "form" },
    field("Name", h("input", { name: "key", maxlength: "200", autofocus: true, placeholder: "optional; the same name opens it again", autocomplete: "off" })),
    field("Template", h("select", { name: "template" }, lists.templates.map(one => option(one.default ? "" : one.name, one.name, one.default)))),
    field("Flavor", h("select", { name: "flavor" }, lists.flavors.map(one => option(one.name,
      `${one.name} · ${bytes(one.memory_bytes)} · ${one.cpus} cpu · ${priceOf(one)}${one.needs_approval ? " · needs approval" : ""}`, one.default, !one.available)))),
    field("Memory", h("input", { name: "memory_bytes", placeholder: "as the flavor says, or 512m", pattern: "[0-9]+[kmgKMG]?", autocomplete: "off" })),
    field("CPUs", h("input", { name: "cpus", type: "number", min: "0.01", step: "0.01", placeholder: "as the flavor says" })),
    field("Network", h("select", { name: "network" }, option("", "as the settings say", true), option("none", "none", false), option("open", "open", false))),
    field("Idle timeout", h("input", { name: "idle_timeout_seconds", placeholder: "as the settings say, or 30m", pattern: "[0-9.]+(ms|s|m|h|d)?", autocomplete: "off" })),
    field("Lease", h("input", { name: "lease_seconds", placeholder: "none, or 2h", pattern: "[0-9.]+(ms|s|m|h|d)?", autocomplete: "off" })),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "keep_files" }), " Keep its files when the sandbox goes"));
  const answer = await ask("New session", content, [{ value: "", label: "Cancel" }, { value: "create", label: "Create", kind: "primary" }]);
  if (answer !== "create") return;
  const form: Record<string, string> = {};
  for (const control of content.querySelectorAll<HTMLInputElement | HTMLSelectElement>("[name]"))
    form[control.name] = control.type === "checkbox" ? ((control as HTMLInputElement).checked ? "1" : "") : control.value.trim();
  try {
    const session = await openSession(form, lists.flavors.find(one => one.name === form.flavor));
    location.hash = `#/s/${session.id}/scratch`;
  } catch (error) {
    toast(explain(error), "error");
  }
}
