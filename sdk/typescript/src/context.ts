// SPDX-License-Identifier: Apache-2.0
import { CodeResult, CodeValue } from "./models.js";
import type { Schemas } from "./schema.js";
import type { Session } from "./session.js";

/** How code is run, and who is told of what meanwhile. */
export interface RunCodeOptions {
  /** Seconds. */
  timeout?: number;
  onStdout?: (text: string) => unknown;
  onStderr?: (text: string) => unknown;
  /** A value of the last expression, or a value that was displayed. */
  onResult?: (value: CodeValue) => unknown;
  onError?: (error: Schemas["RunError"]) => unknown;
  /** Throws `CodeFailed` unless it is ok. */
  check?: boolean;
  /** Aborting cancels the code. */
  signal?: AbortSignal;
}

/** An interpreter of a session that keeps its variables, as a notebook does. Made by `Session.context()`. */
export class Context {
  readonly id: string;
  readonly path: string;

  constructor(readonly session: Session, public raw: Schemas["Context"]) {
    this.id = raw.id;
    this.path = `${session.path}/contexts/${raw.id}`;
  }

  /** The language that it runs. */
  get language(): string { return this.raw.language; }

  /** As it was last seen; `refresh()` asks again. */
  get state(): string { return this.raw.state; }

  /** Runs code and returns its output, its values and displays, and its exception, if any. */
  async run(code: string, options: RunCodeOptions = {}): Promise<CodeResult> {
    const request = { json: { code, timeout_seconds: options.timeout, cancel_on_disconnect: true }, timeout: null, signal: options.signal };
    const hasCallbacks = options.onStdout ?? options.onStderr ?? options.onResult ?? options.onError;
    const result = new CodeResult(hasCallbacks ? await this.follow(request, options)
      : await this.session.transport.call<Schemas["Run"]>("POST", `${this.path}/run`, request));
    return options.check ? result.check() : result;
  }

  private async follow(request: { json: unknown; timeout: null; signal: AbortSignal | undefined }, options: RunCodeOptions): Promise<Partial<Schemas["Run"]>> {
    const answer = await this.session.transport.open("POST", `${this.path}/run`, { ...request, headers: { Accept: "text/event-stream" } });
    const results: Schemas["RunResult"][] = [];
    const raw: Partial<Schemas["Run"]> = { stdout: "", stderr: "", results, error: null };
    try {
      for await (const { name, data } of answer.events()) {
        const event = JSON.parse(data);
        if (name === "stdout" || name === "stderr") {
          raw[name] += event.text;
          await (name === "stdout" ? options.onStdout : options.onStderr)?.(event.text);
        } else if (name === "result" || name === "display") {
          const value: Schemas["RunResult"] = { type: name, data: event.data };
          results.push(value);
          await options.onResult?.(new CodeValue(value));
        } else if (name === "error") {
          raw.error = event as Schemas["RunError"];
          await options.onError?.(raw.error);
        } else if (name === "done") Object.assign(raw, event);
      }
    } finally {
      answer.close();
    }
    return raw;
  }

  private async change(method: string, path: string, json?: unknown): Promise<void> {
    this.raw = await this.session.transport.call<Schemas["Context"]>(method, this.path + path, { json });
  }

  /** Interrupts the code that runs; variables stay. */
  interrupt(): Promise<void> { return this.change("POST", "/interrupt", {}); }
  /** A new interpreter: variables are gone. */
  restart(): Promise<void> { return this.change("POST", "/restart", {}); }
  /** Asks what is known of it now. */
  refresh(): Promise<void> { return this.change("GET", ""); }
  /** Ends the interpreter and what runs in it. */
  remove(): Promise<void> { return this.change("DELETE", ""); }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.remove();
  }
}
