// SPDX-License-Identifier: Apache-2.0
import { Approval } from "./approval.js";
import { Result, ToolResult } from "./models.js";
import type { Schemas } from "./schema.js";
import { Scope } from "./scope.js";
import { readEvents, Session, type Event } from "./session.js";
import { Transport, type ClientOptions } from "./transport.js";

function labels(label: Record<string, string> | string | undefined): string[] | undefined {
  if (label === undefined) return undefined;
  return typeof label === "string" ? [label] : Object.entries(label).map(([name, value]) => `${name}=${value}`);
}

/** A daemon of Sandglass, and on whose behalf it is asked. */
export class Client {
  readonly transport: Transport;

  constructor(private readonly options: ClientOptions = {}) {
    this.transport = new Transport(options);
  }

  /** For whom it asks; empty without an owner. */
  get owner(): string { return this.transport.owner; }

  /** The same daemon with the same key and options, for another owner. */
  withOwner(owner: string): Client { return new Client({ ...this.options, owner }); }

  /** Closes idle connections. Sessions stay: they are the daemon's. */
  close(): void { this.transport.close(); }

  /** Opens a session; the options are those of the API. A `key` that has a session already returns that one. */
  async session(options: Schemas["CreateSession"] = {}): Promise<Session> {
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    return new Session(this, await this.transport.call("POST", "/sessions", { json: options, headers, repeatable: true, timeout: null }));
  }

  /** A session that exists, by its id or by "key:KEY". */
  async attach(reference: string): Promise<Session> {
    return new Session(this, await this.transport.call("GET", `/sessions/${encodeURIComponent(reference).replace(/%3A/g, ":")}`));
  }

  /** The caller's own sessions; an operator may ask for those of another owner, or of all with "*". */
  async sessions(options: { label?: Record<string, string> | string; state?: string; owner?: string; usage?: boolean } = {}): Promise<Session[]> {
    const found: Session[] = [];
    for (let cursor: string | null | undefined; ;) {
      const query = { ...options, label: labels(options.label), limit: 1000, cursor };
      const page: Schemas["SessionList"] = await this.transport.call("GET", "/sessions", { query });
      found.push(...page.sessions.map((raw) => new Session(this, raw)));
      cursor = page.next_cursor;
      if (!cursor) return found;
    }
  }

  /** Ends all of the caller's sessions, or those with a label; all are gone when it resolves. */
  async deleteAll(options: { label?: Record<string, string> | string; idle_longer_than?: number; dry_run?: boolean; owner?: string } = {}): Promise<Schemas["Removal"]> {
    return this.transport.call("DELETE", "/sessions", {
      query: { ...options, idle_longer_than: undefined, idle_longer_than_seconds: options.idle_longer_than, label: labels(options.label) }, timeout: null,
    });
  }

  /** Runs code in one call. The session is made on demand, with the options of `session()`, and stays: `attach(result.sessionId)`. */
  async execute(code: string, options: Omit<Schemas["Execute"], "code"> = {}): Promise<Result> {
    return new Result(await this.transport.call<Schemas["ExecuteResult"]>("POST", "/execute", { json: { code, ...options }, timeout: null }));
  }

  /** An owner for a while: what is made in the scope is destroyed at its end, and nothing else. */
  scope(owner?: string): Scope { return new Scope(this, owner); }

  /** The tools of a model: hand name, description and input_schema to it, and its calls to `callTool`. */
  async tools(): Promise<Schemas["Tool"][]> { return (await this.transport.call<Schemas["ToolList"]>("GET", "/tools")).tools; }

  /** Calls a tool that finds its session itself; the others are `Session.callTool`. */
  async callTool(name: string, args: Record<string, unknown> = {}): Promise<ToolResult> {
    return new ToolResult(await this.transport.call("POST", `/tools/${name}`, { json: args, timeout: null }));
  }

  /** The flavors of sandboxes, with their limits and prices. */
  async flavors(): Promise<Schemas["Flavor"][]> { return this.transport.entries("/flavors", "flavors"); }

  /** Questions that the caller may see: all that wait for a decision, or those of another state. */
  async approvals(options: { state?: string; session?: string } = {}): Promise<Approval[]> {
    const found = await this.transport.entries<Schemas["Approval"]>("/approvals", "approvals", { state: options.state, session_id: options.session });
    return found.map((raw) => new Approval(this.transport, raw));
  }

  /** One of them, by its id. */
  async approval(id: string): Promise<Approval> { return new Approval(this.transport, await this.transport.call("GET", `/approvals/${encodeURIComponent(id)}`)); }

  /** The budget of the caller: cap and spent amount; for approvers also of another owner. */
  async budget(options: { owner?: string } = {}): Promise<Schemas["OwnerBudget"]> { return this.transport.call("GET", "/budget", { query: options }); }

  /** Changes the owner's cap. Only approvers can raise it. */
  async setBudget(cap_usd: number, options: { owner?: string } = {}): Promise<Schemas["OwnerBudget"]> {
    return this.transport.call("PATCH", "/budget", { query: options, json: { cap_usd } });
  }

  /** Events of the caller's sessions, from now on or from behind event number `after`. */
  events(options: { after?: number; follow?: boolean } = {}): AsyncGenerator<Event> {
    return readEvents(this.transport, "/events", options.after, options.follow ?? true);
  }

  /** The caller, as the daemon has identified them. */
  async whoami(): Promise<Schemas["Whoami"]> { return this.transport.call("GET", "/whoami"); }

  /** How many sandboxes there are and may be. */
  async capacity(): Promise<Schemas["Capacity"]> { return this.transport.call("GET", "/capacity"); }

  /** The templates: root file systems of sandboxes. */
  async templates(): Promise<Schemas["Template"][]> { return this.transport.entries("/templates", "templates"); }

  /** The backends of the daemon, with their health and their features. */
  async backends(): Promise<Schemas["Backend"][]> { return (await this.transport.call<Schemas["BackendList"]>("GET", "/backends")).backends; }

  /** API keys and when each was last used; for administrators. */
  async keys(): Promise<Schemas["Key"][]> { return this.transport.entries("/keys", "keys"); }

  /** The daemons of the cluster; one alone is its only node. */
  async nodes(): Promise<Schemas["Node"][]> { return this.transport.entries("/nodes", "nodes"); }

  /** A node takes no new sessions and gives up those that can move; for administrators. */
  async drainNode(node: string): Promise<Schemas["NodeDrain"]> { return this.transport.call("POST", `/nodes/${encodeURIComponent(node)}/drain`); }

  /** A node takes new sessions again; for administrators. */
  async undrainNode(node: string): Promise<Schemas["NodeDrain"]> { return this.transport.call("DELETE", `/nodes/${encodeURIComponent(node)}/drain`); }
}
