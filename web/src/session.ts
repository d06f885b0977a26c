// SPDX-License-Identifier: Apache-2.0
// One session: what it is, how long it has, and everything in it, in tabs.

import { apiOf, end, extend, why } from "./actions";
import { ApiError, SessionApi, explain, get, me, type ServerEvent, type Session } from "./api";
import { duration, empty, h, replace, setText, since, toast } from "./dom";
import { Hourglass } from "./hourglass";
import type { Screen } from "./home";
import { clockText, lastError, makeRow, nameOf, reasonText, remaining, share, type Row } from "./session_view";
import type { Store } from "./store";
import { auditTab } from "./tabs/audit";
import { clocksTab } from "./tabs/clocks";
import { executionsTab } from "./tabs/executions";
import { filesTab } from "./tabs/files";
import { isolationTab } from "./tabs/isolation";
import { portsTab } from "./tabs/ports";
import { scratchTab } from "./tabs/scratch";
import { snippetsTab } from "./tabs/snippets";
import { timelineTab } from "./tabs/timeline";

/** What a tab is given. */
export interface Context { api: SessionApi; session(): Session; row(): Row; store: Store; refresh(): Promise<void> }
export interface Tab { element: HTMLElement; close?(): void; onEvent?(event: ServerEvent): void; onSession?(): void }

type Maker = (context: Context) => Tab | Promise<Tab>;
const tabs: [string, string, Maker][] = [
  ["timeline", "Timeline", timelineTab],
  ["terminal", "Terminal", async context => (await import("./tabs/terminal")).terminalTab(context)],
  ["scratch", "Scratch pad", scratchTab],
  ["files", "Files", filesTab],
  ["executions", "Executions", executionsTab],
  ["usage", "Usage", async context => (await import("./tabs/usage")).usageTab(context)],
  ["ports", "Ports", portsTab],
  ["isolation", "Isolation", isolationTab],
  ["clocks", "Clocks and money", clocksTab],
  ["audit", "Audit", auditTab],
  ["snippets", "Use it", snippetsTab],
];

/** By id; without authentication the owner has to be known first. */
async function find(id: string): Promise<Session> {
  try {
    return await get<Session>(`api/v1/sessions/${encodeURIComponent(id)}`);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404 || me.auth_mode !== "none" || !me.operator) throw error;
    for (const state of ["", "state=ended&"]) {
      const page = await get<{ sessions: Session[] }>(`api/v1/sessions?owner=*&limit=1000&${state}${state ? "" : `ids=${encodeURIComponent(id)}`}`).catch(() => ({ sessions: [] as Session[] }));
      const found = page.sessions.find(session => session.id === id);
      if (found) return found;
    }
    throw error;
  }
}

export function sessionScreen(store: Store, id: string, wanted: string): Screen & { showTab(tab: string): void } {
  const element = h("main", { class: "session", "data-session": id }, h("p", { class: "boot" }, "Loading…"));
  let row: Row | null = null, tab: Tab | null = null, shown = "", closed = false, ticket = 0;
  const glass = new Hourglass(64);
  const title = h("h1"), sub = h("p", { class: "muted sub" }), clockLine = h("span", { class: "clock-line" }), state = h("span", { class: "state" }), trouble = h("p", { class: "problem", hidden: true });
  const panel = h("div", { class: "panel", role: "tabpanel", id: "panel", tabindex: "-1" });
  const strip = h("div", { class: "tabs", role: "tablist", "aria-label": "About this session" });
  const buttons = h("div", { class: "buttons" });

  const context: Context = { api: new SessionApi(id, ""), session: () => row!.session, row: () => row!, store, refresh };

  async function refresh(): Promise<void> {
    const session = await context.api.get<Session>("");
    if (closed) return;
    row = makeRow(session, row ?? undefined);
    showHead();
    tab?.onSession?.();
  }

  async function act(suffix: string, done: string): Promise<void> {
    try { await apiOf(row!.session).call("POST", suffix, { body: {} }); toast(done); await refresh(); } catch (error) { toast(explain(error), "error"); }
  }

  function showHead(): void {
    const { session } = row!, isEnded = session.state === "ended", error = lastError(session);
    setText(title, nameOf(session));
    setText(sub, [session.id, session.owner && `owner ${session.owner}`, `${session.template} · ${session.flavor} · ${session.backend}`, `network ${session.network}`,
      session.generation > 1 ? `incarnation ${session.generation}` : "", `created ${since(session.created_at)} ago`].filter(Boolean).join(" · "));
    setText(state, session.state === "open" && session.executions.running ? "running" : session.state);
    state.dataset.state = session.state === "open" && session.executions.running ? "running" : session.state;
    trouble.hidden = !error && !isEnded;
    setText(trouble, isEnded ? `Ended ${since(session.ended_at)} ago. ${reasonText(session.end_reason)}` : error ? `Its sandbox could not be made: ${error}` : "");
    trouble.classList.toggle("calm", isEnded && !(session.end_reason ?? "").startsWith("crashed"));
    const button = (label: string, call: () => void, kind = ""): HTMLElement => h("button", { class: kind, onclick: call }, label);
    replace(buttons, isEnded ? null : [button("Extend", () => void extend(session).then(refresh)), button("Why?", () => void why(row!)),
      session.state === "paused" ? button("Resume", () => void act("/resume", "Resumed")) : button("Pause", () => void act("/pause", "Paused: its programs stand still")),
      button("End", () => void end(session).then(ended => { if (ended) return refresh(); }), "danger")]);
    tick();
  }

  function tick(): void {
    if (!row) return;
    const isEnded = row.session.state === "ended", left = remaining(row);
    glass.set(isEnded ? 0 : share(row), left);
    setText(clockLine, isEnded ? "ended" : left === null ? clockText(row) : `${duration(left)} left`);
    clockLine.title = isEnded ? "" : clockText(row);
  }

  function showTab(name: string): void {
    if (!row) { wanted = name; return; }
    const at = Math.max(0, tabs.findIndex(one => one[0] === name)), [key, , make] = tabs[at]!;
    if (key === shown) return;
    shown = key;
    tab?.close?.();
    tab = null;
    for (const button of strip.children) {
      const isChosen = (button as HTMLElement).dataset.tab === key;
      button.setAttribute("aria-selected", String(isChosen));
      (button as HTMLElement).tabIndex = isChosen ? 0 : -1;
      if (isChosen) { panel.setAttribute("aria-labelledby", button.id); button.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    }
    replace(panel, h("p", { class: "muted" }, "Loading…"));
    const mine = ++ticket;
    void (async () => {
      try {
        const made = await make(context);
        if (closed || mine !== ticket) { made.close?.(); return; }
        tab = made;
        replace(panel, made.element);
      } catch (error) {
        if (!closed && mine === ticket) replace(panel, empty("This cannot be shown.", explain(error)));
      }
    })();
  }

  function step(by: number): void {
    const at = tabs.findIndex(one => one[0] === shown), next = tabs[(at + by + tabs.length) % tabs.length]!;
    location.hash = `#/s/${id}/${next[0]}`;
  }

  function key(event: KeyboardEvent): boolean {
    const onTab = (event.target as Element).closest("[role=tab]");
    const keys: Record<string, () => void> = {
      Escape: () => { location.hash = "#/"; }, "[": () => step(-1), "]": () => step(1), w: () => { if (row) void why(row); },
      s: () => { location.hash = `#/s/${id}/terminal`; }, l: () => { location.hash = `#/s/${id}/executions`; },
      x: () => { if (row && row.session.state !== "ended") void end(row.session).then(ended => { if (ended) return refresh(); }); },
    };
    if (onTab && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      step(event.key === "ArrowRight" ? 1 : -1);
      setTimeout(() => strip.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
      return true;
    }
    if (!keys[event.key] || !row) return false;
    keys[event.key]!();
    return true;
  }

  async function begin(): Promise<void> {
    try {
      const session = await find(id);
      if (closed) return;
      context.api = new SessionApi(id, session.owner);
      row = makeRow(session);
    } catch (error) {
      const isUnknown = error instanceof ApiError && error.status === 404;
      replace(element, empty(isUnknown ? "There is no such session." : "This session cannot be shown.", isUnknown ? "It may have ended longer ago than records are kept, or it is not yours. " : `${explain(error)} `,
        h("a", { href: "#/" }, "All sessions")));
      return;
    }
    replace(strip, tabs.map(([name, label]) => h("a", { role: "tab", id: `tab-${name}`, "data-tab": name, href: `#/s/${id}/${name}`, "aria-controls": "panel" }, label)));
    replace(element, h("nav", { class: "crumbs" }, h("a", { href: "#/" }, "Sessions")),
      h("section", { class: "head", "aria-label": "Session" }, h("div", { class: "big-glass" }, glass.element, clockLine),
        h("div", { class: "head-text" }, h("div", { class: "title-line" }, title, state), sub, trouble), buttons), strip, panel);
    showHead();
    showTab(wanted);
  }

  let soon = 0;
  const offs = [store.onEvent(event => {
    if (event.data.session_id !== id || !row) return;
    tab?.onEvent?.(event);
    if (!soon) soon = window.setTimeout(() => { soon = 0; refresh().catch(() => undefined); }, 300);
  }), store.on("link", () => { if (store.link === "live" && row) refresh().catch(() => undefined); })];
  const ticker = setInterval(tick, 1000);
  void begin();
  return { element, key, showTab, close: () => { closed = true; tab?.close?.(); clearInterval(ticker); clearTimeout(soon); for (const off of offs) off(); } };
}
