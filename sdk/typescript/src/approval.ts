// SPDX-License-Identifier: Apache-2.0
import type { Schemas } from "./schema.js";
import type { Transport } from "./transport.js";

/** A question to the person who pays. `state` is "pending", "approved", "denied", "expired" or "cancelled". */
export class Approval {
  readonly id: string;

  constructor(private readonly transport: Transport, public raw: Schemas["Approval"]) {
    this.id = raw.id;
  }

  /** As it was last seen; `refresh()` asks again. */
  get state(): Schemas["Approval"]["state"] { return this.raw.state; }
  /** The session that it is for. */
  get sessionId(): string { return this.raw.session; }
  /** The flavor that was asked for. */
  get flavor(): string { return this.raw.flavor; }
  /** Why a person is asked. */
  get question(): string { return this.raw.question ?? ""; }
  /** The text for the caller who asked; null while the approval is pending. */
  get result(): string | null { return this.raw.result; }

  /** Its state now, or when it is decided, after `wait` seconds at most. */
  async refresh(wait = 0): Promise<string> {
    this.raw = await this.transport.call("GET", `/approvals/${this.id}`, { query: { wait_seconds: wait || undefined }, timeout: wait + 60 });
    return this.state;
  }

  /** For one sandbox, or with `session` for all of this flavor in the session. */
  async approve(options: { reason?: string; session?: boolean } = {}): Promise<string> {
    return this.decide({ decision: "approve", reason: options.reason, session: options.session || undefined });
  }

  /** Refuses it; `reason` is shown to the caller who asked. */
  async deny(options: { reason?: string } = {}): Promise<string> {
    return this.decide({ decision: "deny", reason: options.reason });
  }

  private async decide(json: Schemas["DecideApproval"]): Promise<string> {
    this.raw = await this.transport.call("POST", `/approvals/${this.id}`, { json });
    return this.state;
  }
}
