// SPDX-License-Identifier: Apache-2.0
import type { Client } from "./client.js";
import { Conflict, Unavailable } from "./errors.js";
import type { Answer } from "./transport.js";

const lostSeconds = 30;

/**
 * An owner for a while: `open()` gives a client for it, `close()` destroys all of its sessions, and only those. The daemon watches a lease
 * meanwhile: should this process be killed, the sessions go all the same.
 */
export class Scope {
  /** Whose sessions they are; empty before it is open. */
  owner = "";
  /** Ids of the sessions that closing has destroyed. */
  destroyed: string[] = [];
  private own: Client | undefined;
  private answer: Answer | undefined;

  constructor(private readonly parent: Client, private readonly wanted?: string) {}

  /** Takes the lease; the client is for this owner. */
  async open(): Promise<Client> {
    if (this.own) return this.own;
    const lines = await this.take(this.wanted);
    this.own = this.parent.withOwner(this.owner);
    void this.watch(lines);
    return this.own;
  }

  private async take(owner: string | undefined): Promise<AsyncGenerator<string>> {
    this.answer = await this.parent.transport.open("POST", "/scopes", { json: owner ? { owner } : {}, timeout: null });
    const lines = this.answer.lines();
    const first = await lines.next();
    if (first.done) throw new Unavailable("the daemon ended the scope at once", { code: "connection_lost" });
    this.owner = (JSON.parse(first.value) as { owner: string }).owner;
    return lines;
  }

  /** Takes the lease up again when the daemon is replaced. */
  private async watch(lines: AsyncGenerator<string>): Promise<void> {
    while (this.own) {
      try {
        while (!(await lines.next()).done);
      } catch {
        // Broken: taken up below, unless we are closing.
      }
      const deadline = Date.now() + lostSeconds * 1000;
      for (let taken = false; this.own && !taken;) {
        try {
          lines = await this.take(this.owner);
          taken = true;
        } catch (problem) {
          if (Date.now() > deadline || !(problem instanceof Unavailable || problem instanceof Conflict)) return;
          await new Promise((done) => setTimeout(done, 100));
        }
      }
    }
    this.answer?.close();
  }

  /** Destroys the sessions and returns their ids, when all of them are gone. */
  async close(): Promise<string[]> {
    const own = this.own;
    if (!own) return [];
    try {
      this.destroyed = (await own.deleteAll()).destroyed;
    } finally {
      this.own = undefined;
      this.answer?.close();
      own.close();
    }
    return this.destroyed;
  }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
