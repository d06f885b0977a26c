// SPDX-License-Identifier: Apache-2.0
// What the daemon has: all live sessions, what ended lately, and what waits for a decision. One stream of events keeps it current.

import { ApiError, SessionApi, follow, get, me, type Approval, type Execution, type ServerEvent, type Session } from "./api";
import { commandOf, makeRow, type Row } from "./session_view";

export interface Host { cpus: number; load: number; memory_bytes: number; memory_available_bytes?: number }
export interface Capacity {
  sandboxes: number; max_sandboxes: number; pool: number; waiting: number; own: number; host?: Host;
  nodes?: { node: string; capacity: { host?: Host } }[]; // of a cluster
}

/** Of the machine, or of all machines of a cluster together. */
export function hostOf(capacity: Capacity): Host | null {
  const hosts = capacity.host ? [capacity.host] : (capacity.nodes ?? []).flatMap(one => one.capacity.host ?? []);
  const sum = (pick: (host: Host) => number): number => hosts.reduce((total, host) => total + pick(host), 0);
  return hosts.length ? { cpus: sum(host => host.cpus), load: sum(host => host.load), memory_bytes: sum(host => host.memory_bytes),
    memory_available_bytes: sum(host => host.memory_available_bytes ?? 0) } : null;
}
export interface Budget { owner: string; cap_usd: number | null; spent_usd: number; reserved_usd: number }
export interface NodeRow { id: string; state: string; self: boolean; sessions: number; sandboxes: number; max_sandboxes: number }
export interface Ended { session: Session; command: string | null }

type Topic = "list" | "rows" | "meta" | "ended" | "approvals" | "link";
const FLUSH_MS = 500, PAGE = 1000, IDS = 200, RECENT = 12, SPENDERS = 20;

const listPath = (query: string): string => `api/v1/sessions?${me.operator ? "owner=*&" : ""}${query}`;

export class Store {
  rows = new Map<string, Row>();
  ended: Ended[] = [];
  approvals: Approval[] = [];
  capacity: Capacity | null = null;
  budget: Budget | null = null;
  nodes: NodeRow[] = [];
  tight: { session: Session; spent: number; cap: number }[] = []; // sessions whose budget is nearly used up
  version = "";
  link: "live" | "lost" | "loading" = "loading";
  private listeners = new Map<Topic, Set<() => void>>();
  private eventListeners = new Set<(event: ServerEvent) => void>();
  private dirty = new Set<string>();
  private gone = new Set<string>();
  private flushing = false;
  private stops: (() => void)[] = [];

  on(topic: Topic, call: () => void): () => void {
    const calls = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, calls.add(call));
    return () => calls.delete(call);
  }

  onEvent(call: (event: ServerEvent) => void): () => void {
    this.eventListeners.add(call);
    return () => this.eventListeners.delete(call);
  }

  private tell(topic: Topic): void {
    for (const call of this.listeners.get(topic) ?? []) call();
  }

  start(): void {
    const flush = setInterval(() => void this.flush(), FLUSH_MS);
    const meta = setInterval(() => { if (!document.hidden) void this.loadMeta(); }, 5000);
    const tight = setInterval(() => { if (!document.hidden) void this.loadTight(); }, 15000);
    // The stream first: what happens while the list is on its way is in one of the two.
    const stop = follow(`api/v1/events${me.operator && me.auth_mode === "none" ? "?owner=*" : ""}`, {
      onEvent: event => this.take(event),
      onState: (state, wasLost) => {
        this.link = state;
        this.tell("link");
        if (state === "live") void this.load(wasLost);
      },
    });
    this.stops.push(stop, () => clearInterval(flush), () => clearInterval(meta), () => clearInterval(tight));
  }

  stop(): void {
    for (const call of this.stops.splice(0)) call();
  }

  // --- loading ----------------------------------------------------------------------------------

  async load(_again: boolean): Promise<void> {
    try {
      const rows = new Map<string, Row>();
      let cursor: string | null = "";
      while (cursor !== null) {
        const page: { sessions: Session[]; next_cursor: string | null } = await get(listPath(`limit=${PAGE}&cursor=${cursor}`));
        for (const session of page.sessions) rows.set(session.id, makeRow(session, this.rows.get(session.id)));
        cursor = page.next_cursor;
        if (cursor !== null && !this.rows.size) { this.rows = new Map(rows); this.tell("list"); }
      }
      this.rows = rows;
      this.tell("list");
      await Promise.all([this.loadEnded(), this.loadApprovals(), this.loadMeta(), this.loadTight()]);
    } catch { /* the stream says whether the daemon is there */ }
  }

  async loadMeta(): Promise<void> {
    const health = get<{ version: string }>("healthz");
    const [capacity, budget, nodes] = await Promise.allSettled([get<Capacity>("api/v1/capacity"), get<Budget>("api/v1/budget"),
      get<{ nodes: NodeRow[] }>("api/v1/nodes")]);
    if (capacity.status === "fulfilled") this.capacity = capacity.value;
    if (budget.status === "fulfilled") this.budget = budget.value;
    if (nodes.status === "fulfilled") this.nodes = nodes.value.nodes;
    this.version = (await health.catch(() => ({ version: this.version }))).version;
    this.tell("meta");
  }

  /** Only sessions that have spent something have a budget to look at, and those are few. */
  async loadTight(): Promise<void> {
    const spenders = [...this.rows.values()].filter(row => row.session.spent_usd > 0).sort((a, b) => b.session.spent_usd - a.session.spent_usd).slice(0, SPENDERS);
    const found = await Promise.all(spenders.map(async ({ session }) => {
      const budget = await new SessionApi(session.id, session.owner).get<Budget>("/budget").catch(() => null);
      return budget?.cap_usd && budget.spent_usd + budget.reserved_usd > 0.8 * budget.cap_usd ? [{ session, spent: budget.spent_usd + budget.reserved_usd, cap: budget.cap_usd }] : [];
    }));
    this.tight = found.flat();
    this.tell("approvals");
  }

  async loadApprovals(): Promise<void> {
    this.approvals = (await get<{ approvals: Approval[] }>("api/v1/approvals?state=pending")).approvals;
    this.tell("approvals");
  }

  async loadEnded(): Promise<void> {
    const { sessions } = await get<{ sessions: Session[] }>(listPath(`state=ended&limit=${RECENT}`));
    const known = new Map(this.ended.map(one => [one.session.id, one]));
    this.ended = sessions.map(session => ({ session, command: known.get(session.id)?.command ?? null }));
    this.tell("ended");
    for (const one of this.ended) if (one.command === null) void this.loadCommand(one);
  }

  private async loadCommand(one: Ended): Promise<void> {
    const api = new SessionApi(one.session.id, one.session.owner);
    const list = await api.get<{ executions: Execution[] }>("/executions?limit=1").catch(() => ({ executions: [] as Execution[] }));
    one.command = list.executions[0] ? commandOf(list.executions[0]) : "";
    this.tell("ended");
  }

  /** A page of sessions that have ended, the newest first. */
  async pageOfEnded(cursor: string): Promise<{ rows: Row[]; next: string | null }> {
    const page = await get<{ sessions: Session[]; next_cursor: string | null }>(listPath(`state=ended&limit=${PAGE}&cursor=${cursor}`));
    return { rows: page.sessions.map(session => makeRow(session)), next: page.next_cursor };
  }

  // --- what happens -----------------------------------------------------------------------------

  private take(event: ServerEvent): void {
    const id = event.data.session_id;
    if (id) {
      if (event.type === "session.ended") this.gone.add(id);
      else this.dirty.add(id);
    }
    if (event.type.startsWith("budget.")) void this.loadTight();
    if (event.type.startsWith("approval.")) void this.loadApprovals().catch(() => undefined);
    for (const call of this.eventListeners) call(event);
  }

  /** Everything that happened since the last time, in one request. */
  private async flush(): Promise<void> {
    if (this.flushing || (!this.dirty.size && !this.gone.size)) return;
    this.flushing = true;
    try {
      const gone = [...this.gone], ids = [...this.dirty].filter(id => !this.gone.has(id)).slice(0, IDS);
      this.gone.clear();
      let listChanged = false;
      for (const id of gone) { listChanged = this.rows.delete(id) || listChanged; this.dirty.delete(id); }
      for (const id of ids) this.dirty.delete(id);
      if (ids.length) listChanged = (await this.refresh(ids, false)) || listChanged;
      this.tell(listChanged ? "list" : "rows");
      if (gone.length) await this.loadEnded();
    } catch (error) {
      if (!(error instanceof ApiError)) return; // the stream will say it too, and then everything is loaded again
    } finally {
      this.flushing = false;
    }
  }

  /** Fetches some sessions; true when there is one more or less. */
  async refresh(ids: string[], measure: boolean): Promise<boolean> {
    const { sessions } = await get<{ sessions: Session[] }>(listPath(`limit=${PAGE}&${measure ? "usage=1&" : ""}ids=${ids.join(",")}`));
    const found = new Set<string>();
    let changed = false;
    for (const session of sessions) {
      found.add(session.id);
      changed ||= !this.rows.has(session.id);
      const row = makeRow(session, this.rows.get(session.id));
      if (!measure && session.executions.running) row.runs = null;
      this.rows.set(session.id, row);
    }
    for (const id of ids) if (!found.has(id)) changed = this.rows.delete(id) || changed;
    return changed;
  }

  /** What the rows on the screen use and run: only those are asked for. */
  async look(ids: string[]): Promise<void> {
    if (!ids.length) return;
    const changed = await this.refresh(ids.slice(0, IDS), true);
    const busy = ids.map(id => this.rows.get(id)).filter((row): row is Row => !!row && row.runs === null).slice(0, 20);
    await Promise.all(busy.map(row => this.loadRuns(row)));
    this.tell(changed ? "list" : "rows");
  }

  private async loadRuns(row: Row): Promise<void> {
    const api = new SessionApi(row.session.id, row.session.owner);
    const list = await api.get<{ executions: Execution[] }>("/executions?state=running&limit=1").catch(() => ({ executions: [] as Execution[] }));
    const current = this.rows.get(row.session.id);
    if (current) current.runs = list.executions[0] ? commandOf(list.executions[0]) : "";
  }
}
