// SPDX-License-Identifier: Apache-2.0
// The first screen: the strip, what needs a decision, all sessions, and what ended lately.

import { createSession, decide, end, extend, mayDecide, why } from "./actions";
import { me, type Approval, type Session } from "./api";
import { bytes, duration, empty, h, replace, setText, since, timeTag, usd, type Child } from "./dom";
import { Hourglass } from "./hourglass";
import { clockText, lastError, nameOf, reasonText, remaining, share, shortId, type Row } from "./session_view";
import { hostOf, type Store } from "./store";
import { VirtualList, type RowView } from "./table";

export interface Screen { element: HTMLElement; close(): void; key?(event: KeyboardEvent): boolean }

const ROW = 40;

// --- the strip ------------------------------------------------------------------------------------

const tile = (label: string, value: Child, note?: Child, level?: number): HTMLElement =>
  h("div", { class: `tile${level !== undefined && level > 0.9 ? " high" : ""}` }, h("span", { class: "tile-label" }, label), h("span", { class: "tile-value" }, value),
    note ? h("span", { class: "tile-note" }, note) : null);

function stripTiles(store: Store): Child {
  const { capacity, budget, nodes } = store;
  if (!capacity) return tile("Sandglass", "…");
  const host = hostOf(capacity), used = host?.memory_available_bytes !== undefined ? host.memory_bytes - host.memory_available_bytes : null;
  return [
    tile("Sandboxes", [capacity.sandboxes, h("small", null, ` of ${capacity.max_sandboxes}`)], `${capacity.pool} ready in the pool`, capacity.sandboxes / capacity.max_sandboxes),
    capacity.waiting ? tile("Waiting", capacity.waiting, "for a free place") : null,
    host && used !== null ? tile("Host memory", [bytes(used), h("small", null, ` of ${bytes(host.memory_bytes)}`)], null, used / host.memory_bytes) : null,
    host ? tile("Load", [host.load.toFixed(1), h("small", null, ` on ${host.cpus} cpus`)], null, host.load / host.cpus / 4) : null,
    budget ? tile("Spent", [usd(budget.spent_usd), h("small", null, budget.cap_usd === null ? " no cap" : ` of ${usd(budget.cap_usd)}`)],
      budget.reserved_usd ? `${usd(budget.reserved_usd)} reserved` : null, budget.cap_usd ? budget.spent_usd / budget.cap_usd : 0) : null,
    nodes.length > 1 ? tile("Nodes", nodes.filter(node => node.state === "up").length, `of ${nodes.length} up`) : null,
    tile("Version", store.version || "…", me.principal || me.owner || (me.auth_mode === "none" ? "no authentication" : "")),
  ];
}

// --- needs you ------------------------------------------------------------------------------------

function approvalCard(approval: Approval, store: Store): HTMLElement {
  const left = (Date.parse(approval.expires_at) - Date.now()) / 1000;
  const who = approval.requested_by || approval.owner || "a caller";
  const button = (label: string, decision: "once" | "session" | "deny", kind: string): HTMLElement =>
    h("button", { class: kind, onclick: () => void decide(approval, decision), "aria-label": `${label}: ${approval.flavor} for ${who}` }, label);
  return h("li", { class: "need approval" },
    h("div", { class: "need-text" },
      h("strong", null, `${approval.flavor}${approval.price_per_hour === null ? ", price unknown" : `, ${usd(approval.price_per_hour)} an hour`}`),
      h("span", null, `${who}${approval.on_behalf_of ? ` for ${approval.on_behalf_of}` : ""} asks in `, h("a", { href: `#/s/${approval.session}` }, sessionName(store, approval.session)), `: ${approval.question}`),
      h("span", { class: "muted" }, `${approval.estimated_usd === null ? "" : `${usd(approval.estimated_usd)} at first · `}${left > 0 ? `${duration(left)} left` : "expired"}`)),
    mayDecide() ? h("div", { class: "buttons" }, button("Once", "once", "primary"), button("For the session", "session", ""), button("Deny", "deny", "danger"))
      : h("span", { class: "muted" }, "an approver decides"));
}

const sessionName = (store: Store, id: string): string => {
  const row = store.rows.get(id);
  return row ? nameOf(row.session) : shortId(id);
};

const errorCard = (session: Session, text: string): HTMLElement =>
  h("li", { class: "need error" }, h("div", { class: "need-text" }, h("strong", null, h("a", { href: `#/s/${session.id}` }, nameOf(session)), " has no sandbox"), h("span", null, text)));

function needs(store: Store): HTMLElement[] {
  const cards = store.approvals.map(one => approvalCard(one, store)), budget = store.budget;
  if (budget?.cap_usd && budget.spent_usd + budget.reserved_usd > 0.8 * budget.cap_usd)
    cards.push(h("li", { class: "need budget" }, h("div", { class: "need-text" }, h("strong", null, "The budget is nearly used up"),
      h("span", null, `${usd(budget.spent_usd)} spent and ${usd(budget.reserved_usd)} reserved of ${usd(budget.cap_usd)}`))));
  for (const { session, spent, cap } of store.tight)
    cards.push(h("li", { class: "need budget" }, h("div", { class: "need-text" }, h("strong", null, "The budget of ", h("a", { href: `#/s/${session.id}/clocks` }, nameOf(session)), " is nearly used up"),
      h("span", null, `${usd(spent)} spent or reserved of ${usd(cap)}`))));
  for (const { session } of store.rows.values()) {
    const error = lastError(session);
    if (error && cards.length < 50) cards.push(errorCard(session, error));
  }
  return cards;
}

// --- a row of the table ---------------------------------------------------------------------------

const columns: [string, string][] = [["name", "Name"], ["owner", "Owner"], ["status", "State"], ["kind", "Template · flavor"], ["cpu", "CPU"], ["mem", "Memory"],
  ["runs", "Runs"], ["ends", "Ends"], ["age", "Age"], ["labels", "Labels"]];

const headerRow = (): HTMLElement => h("div", { class: "row header", role: "row", "aria-rowindex": "1" },
  columns.map(([name, label]) => h("div", { role: "columnheader", class: `cell ${name}` }, label)));

class Bar {
  private readonly fill = h("span", { class: "fill" });
  private readonly text = h("span", { class: "bar-text" }, "");
  readonly element = h("span", { class: "bar" }, this.fill, this.text);
  private shown = -1;
  set(part: number | null, text: string): void {
    const level = part === null ? 0 : Math.min(1, Math.max(0, part));
    if (Math.abs(level - this.shown) > 0.004) {
      this.shown = level;
      this.fill.style.transform = `scaleX(${level})`;
      this.element.classList.toggle("high", level > 0.9);
    }
    setText(this.text, text);
  }
}

class SessionRow implements RowView<Row> {
  private readonly glass = new Hourglass(22);
  private readonly name = h("a", { class: "name-link", tabindex: "-1" });
  private readonly owner = h("div", { class: "cell owner", role: "gridcell" });
  private readonly stateText = h("span", { class: "state" });
  private readonly kind = h("div", { class: "cell kind", role: "gridcell" });
  private readonly cpu = new Bar();
  private readonly mem = new Bar();
  private readonly runs = h("div", { class: "cell runs", role: "gridcell" });
  private readonly ends = h("span", { class: "ends-text" });
  private readonly more = h("button", { class: "small extend", tabindex: "-1", onclick: () => { if (this.row) void extend(this.row.session); } }, "Extend");
  private readonly age = h("div", { class: "cell age", role: "gridcell" });
  private readonly labels = h("div", { class: "cell labels", role: "gridcell" });
  private row: Row | null = null;
  readonly element = h("div", { class: "row", role: "row" },
    h("div", { class: "cell name", role: "gridcell" }, this.glass.element, this.name), this.owner, h("div", { class: "cell status", role: "gridcell" }, this.stateText), this.kind,
    h("div", { class: "cell cpu", role: "gridcell" }, this.cpu.element), h("div", { class: "cell mem", role: "gridcell" }, this.mem.element), this.runs,
    h("div", { class: "cell ends", role: "gridcell" }, this.ends, this.more), this.age, this.labels);

  update(row: Row): void {
    const { session } = row, isEnded = session.state === "ended";
    if (this.row !== row) this.setFixed(row);
    this.row = row;
    this.glass.set(isEnded ? 0 : share(row), remaining(row));
    setText(this.ends, isEnded ? session.end_reason ?? "ended" : clockText(row));
    setText(this.age, isEnded ? `${since(session.ended_at)} ago` : since(session.created_at));
    setText(this.runs, session.executions.running ? row.runs || `${session.executions.running} running` : "");
    this.cpu.set(row.cpu, row.cpu === null ? "–" : `${Math.round(row.cpu * 100)}%`);
    const memory = session.usage?.memory_bytes;
    this.mem.set(memory === undefined || !session.limits.memory_bytes ? null : memory / session.limits.memory_bytes, memory === undefined || isEnded ? "–" : bytes(memory));
  }

  private setFixed(row: Row): void {
    const { session } = row, state = lastError(session) ? "error" : session.state === "open" && session.executions.running ? "running" : session.state;
    setText(this.name, nameOf(session));
    this.name.href = `#/s/${session.id}`;
    this.name.title = session.id;
    setText(this.owner, session.owner || "–");
    setText(this.stateText, state);
    this.stateText.dataset.state = state;
    setText(this.kind, `${session.template} · ${session.flavor}`);
    setText(this.labels, Object.entries(session.labels).map(([name, value]) => `${name}=${value}`).join(" "));
    this.more.hidden = session.state === "ended" || session.time_remaining_clock === "lifetime" || session.time_remaining_seconds === null;
    this.more.setAttribute("aria-label", `Extend ${nameOf(session)}`);
  }
}

// --- the screen -----------------------------------------------------------------------------------

const words = (query: string): string[] => query.toLowerCase().split(/\s+/).filter(Boolean);

function help(): HTMLElement {
  const keys: [string, string][] = [["/", "filter"], ["↑ ↓", "select"], ["Enter", "open"], ["s", "shell"], ["l", "logs"], ["w", "why it ends"], ["x", "end it"], ["n", "new session"]];
  return h("p", { class: "keys", "aria-label": "Keys" }, keys.map(([key, label]) => h("span", null, h("kbd", null, key), ` ${label}`)));
}

export function home(store: Store, query: URLSearchParams): Screen {
  const strip = h("section", { class: "strip", "aria-label": "The daemon" });
  const needsList = h("ul", { class: "needs" });
  const needsBox = h("section", { class: "needs-box", "aria-labelledby": "needs-title", hidden: true }, h("h2", { id: "needs-title" }, "Needs you"), needsList);
  const count = h("span", { class: "muted count" });
  const box = h("input", { type: "search", class: "filter", placeholder: "Filter: name, owner:ann, state:paused, team=red", "aria-label": "Filter sessions", value: query.get("q") ?? "" });
  let showsEnded = query.get("view") === "ended", endedRows: Row[] = [], filtered: Row[] = [];
  const list = new VirtualList<Row>("Sessions", ROW, () => new SessionRow(), headerRow(), row => { location.hash = `#/s/${row.session.id}`; });
  const nothing = h("div", { hidden: true });
  const recent = h("ul", { class: "recent" });
  const recentBox = h("section", { class: "recent-box", "aria-labelledby": "recent-title" }, h("h2", { id: "recent-title" }, "Recent ends"), recent);
  const tab = (label: string, ended: boolean): HTMLButtonElement => h("button", { class: "switch", "aria-pressed": String(showsEnded === ended), onclick: () => void show(ended) }, label);
  const live = tab("Live", false), past = tab("Ended", true);
  const element = h("main", { class: "home" }, strip, needsBox,
    h("section", { class: "sessions", "aria-labelledby": "sessions-title" },
      h("div", { class: "bar-row" }, h("h2", { id: "sessions-title" }, "Sessions"), h("div", { class: "switches", role: "group", "aria-label": "Which sessions" }, live, past), count, box,
        h("button", { class: "primary", onclick: () => void createSession() }, "New session")),
      list.element, nothing, help()), recentBox);

  function writeUrl(): void {
    const parameters = new URLSearchParams();
    if (box.value) parameters.set("q", box.value);
    if (showsEnded) parameters.set("view", "ended");
    const text = parameters.toString();
    history.replaceState(null, "", `#/${text ? `?${text}` : ""}`);
  }

  function fill(): void {
    const wanted = words(box.value);
    const all = showsEnded ? endedRows : [...store.rows.values()];
    filtered = wanted.length ? all.filter(row => wanted.every(word => row.search.includes(word))) : all;
    if (!showsEnded) filtered.sort((a, b) => a.session.created_at < b.session.created_at ? 1 : a.session.created_at > b.session.created_at ? -1 : a.session.id < b.session.id ? -1 : 1);
    list.setItems(filtered);
    setText(count, wanted.length ? `${filtered.length} of ${all.length}` : String(all.length));
    list.element.hidden = !filtered.length;
    nothing.hidden = filtered.length > 0;
    if (!filtered.length) replace(nothing, whatToDo(all.length > 0));
  }

  function whatToDo(isFiltered: boolean): HTMLElement {
    if (store.link === "loading") return empty("Loading…");
    if (isFiltered) return empty("No session fits this filter.", h("button", { onclick: () => { box.value = ""; writeUrl(); fill(); } }, "Show all"));
    if (showsEnded) return empty("No session has ended yet.", "When one does, its reason and its history stay here until retention.");
    return empty("No session yet.", "Make one with ", h("button", { class: "primary", onclick: () => void createSession() }, "New session"), " or on the command line: ",
      h("code", null, "sandglass execute --code 'print(6 * 7)'"));
  }

  async function show(ended: boolean): Promise<void> {
    showsEnded = ended;
    live.setAttribute("aria-pressed", String(!ended));
    past.setAttribute("aria-pressed", String(ended));
    list.element.scrollTop = 0;
    list.selected = -1;
    writeUrl();
    if (ended) endedRows = (await store.pageOfEnded("").catch(() => ({ rows: [] as Row[], next: null }))).rows;
    fill();
    if (!ended) void look();
  }

  // A list of rows replaces the objects: the table has the fresh ones.
  function refreshRows(): void {
    if (!showsEnded) {
      filtered = filtered.map(row => store.rows.get(row.session.id) ?? row);
      list.setItems(filtered);
    }
    fillNeeds();
  }

  // Cards that say the same stay: a person may be about to press one of their buttons.
  let needsShown = "";
  function fillNeeds(): void {
    const cards = needs(store), text = cards.map(card => card.textContent).join("\n");
    if (text === needsShown) return;
    needsShown = text;
    needsBox.hidden = !cards.length;
    replace(needsList, cards);
    document.title = cards.length ? `(${cards.length}) Sandglass` : "Sandglass";
  }

  function fillRecent(): void {
    recentBox.hidden = showsEnded || !store.ended.length;
    replace(recent, store.ended.slice(0, 8).map(({ session, command }) => h("li", null,
      h("a", { href: `#/s/${session.id}` }, nameOf(session)), h("span", { class: "reason" }, reasonText(session.end_reason)),
      h("code", { class: "command" }, command || ""), session.ended_at ? timeTag(session.ended_at, `${since(session.ended_at)} ago`) : null)));
  }

  async function look(): Promise<void> {
    if (!showsEnded && !document.hidden) await store.look(list.visible().map(row => row.session.id)).catch(() => undefined);
  }

  function key(event: KeyboardEvent): boolean {
    const row = list.selection;
    const go: Record<string, () => void> = {
      "/": () => box.focus(), n: () => void createSession(),
      ArrowDown: () => list.select(list.selected + 1), ArrowUp: () => list.select(list.selected - 1), j: () => list.select(list.selected + 1), k: () => list.select(list.selected - 1),
      Home: () => list.select(0), End: () => list.select(list.length - 1), PageDown: () => list.select(list.selected + 15), PageUp: () => list.select(list.selected - 15),
    };
    const ofRow: Record<string, (one: Row) => void> = {
      Enter: one => { location.hash = `#/s/${one.session.id}`; }, s: one => { location.hash = `#/s/${one.session.id}/terminal`; },
      l: one => { location.hash = `#/s/${one.session.id}/executions`; }, w: one => void why(one), x: one => void end(one.session),
    };
    if (go[event.key]) { go[event.key]!(); return true; }
    if (row && ofRow[event.key]) { ofRow[event.key]!(row); return true; }
    return false;
  }

  box.addEventListener("input", () => { writeUrl(); fill(); });
  box.addEventListener("keydown", event => {
    if (event.key === "Escape" || event.key === "Enter") { event.preventDefault(); list.element.focus(); if (list.selected < 0) list.select(0); }
    if (event.key === "ArrowDown") { list.element.focus(); list.select(Math.max(0, list.selected)); }
    event.stopPropagation();
  });
  let listTimer = 0;
  const soon = (): void => { if (!listTimer) listTimer = window.setTimeout(() => { listTimer = 0; fill(); fillNeeds(); }, 250); };
  const offs = [store.on("list", soon), store.on("rows", refreshRows), store.on("meta", () => { replace(strip, stripTiles(store)); fillNeeds(); }),
    store.on("ended", fillRecent), store.on("approvals", fillNeeds), store.on("link", fill)];
  const ticker = setInterval(() => { if (!document.hidden) list.schedule(); }, 1000);
  const watcher = setInterval(() => void look(), 5000);
  replace(strip, stripTiles(store));
  fill();
  fillNeeds();
  fillRecent();
  if (showsEnded) void show(true);
  const first = setTimeout(() => { void look().then(() => setTimeout(() => void look(), 1500)); }, 300);
  return { element, key, close: () => { for (const off of offs) off(); clearInterval(ticker); clearInterval(watcher); clearTimeout(first); clearTimeout(listTimer); } };
}
