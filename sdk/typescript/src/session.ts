// SPDX-License-Identifier: Apache-2.0
import { Approval } from "./approval.js";
import type { Client } from "./client.js";
import { Context, type RunCodeOptions } from "./context.js";
import { Gone, NotFound } from "./errors.js";
import { Process, Pty, Stream } from "./execution.js";
import { Files, Kept, Storage } from "./files.js";
import { Result, ToolResult, type CodeResult, type Program } from "./models.js";
import type { Schemas } from "./schema.js";
import type { Transport } from "./transport.js";

/** How a program is started. */
export interface StartOptions {
  env?: Record<string, string>;
  /** Variables as in `env` whose values are shown to no reader. */
  secrets?: Record<string, string>;
  cwd?: string;
  user?: string;
  /** Seconds; the program is killed then with everything that it started. */
  timeout?: number;
  /** All of its input, or true: it is sent by `Process.write`. */
  stdin?: string | boolean;
  /** A terminal instead of pipes. */
  tty?: boolean | { cols: number; rows: number };
  /** The caller's own id: a repeated one returns the same execution. */
  key?: string;
  /** Only in this sandbox of the session. */
  generation?: number;
}

/** How a program is run to its end. */
export interface RunOptions extends StartOptions {
  /** Called with text while it runs. */
  onStdout?: (text: string) => unknown;
  onStderr?: (text: string) => unknown;
  /** Throws `ExecutionFailed` unless it ends with exit code 0. */
  check?: boolean;
  /** Aborting cancels the program. */
  signal?: AbortSignal;
}

/** Something that happened. */
export type Event = Schemas["Event"];

export async function* readEvents(transport: Transport, path: string, after: number | undefined, follow: boolean): AsyncGenerator<Event> {
  const answer = await transport.open("GET", path, { query: { after, follow }, headers: { Accept: "text/event-stream" }, timeout: null });
  try {
    for await (const { data } of answer.events()) {
      const event = JSON.parse(data) as Event;
      if (event.sequence !== undefined) yield event;
    }
  } finally {
    answer.close();
  }
}

function bodyOf(program: Program, options: StartOptions, more: object): object {
  const { env, secrets, cwd, user, timeout, stdin, tty, key, generation } = options;
  const what = typeof program === "string" ? { command: program } : { argv: program };
  return { ...what, env, secrets, cwd, user, timeout_seconds: timeout, stdin, tty, key, generation, ...more };
}

/** A session of the daemon: a sandbox of one's own. Made by `Client.session()`; `await using` deletes it at the end of its block. */
export class Session {
  readonly id: string;
  readonly path: string;
  readonly transport: Transport;
  /** Files inside of its sandbox. */
  readonly files: Files;
  /** Files that programs have stored. */
  readonly storage: Storage;
  /** The workspace of an ended sandbox. */
  readonly kept: Kept;
  private readonly ownContexts = new Map<string, Promise<Context>>();

  constructor(readonly client: Client, public raw: Schemas["Session"]) {
    this.id = raw.id;
    this.path = `/sessions/${raw.id}`;
    this.transport = client.transport;
    this.files = new Files(this);
    this.storage = new Storage(this);
    this.kept = new Kept(this);
  }

  /** "open", "paused", "ending" or "ended", as it was last seen. */
  get state(): Schemas["Session"]["state"] { return this.raw.state; }
  /** When its lease ends, as it was last seen. */
  get expiresAt(): string | null { return this.raw.expires_at; }
  /** Why it ended: "idle", "lease", "deleted", "crashed: oom", …; null while it lives. */
  get endReason(): string | null { return this.raw.end_reason; }

  private async change(method: string, path: string, json?: unknown): Promise<Schemas["Session"]> {
    this.raw = await this.transport.call<Schemas["Session"]>(method, this.path + path, { json, timeout: null });
    return this.raw;
  }

  /** Runs a program to its end: a list is its argv, a text is a line for the shell. */
  async run(program: Program, options: RunOptions = {}): Promise<Result> {
    let result: Result;
    if (options.onStdout || options.onStderr) {
      const stream = await this.stream(program, options);
      for await (const chunk of stream) await (chunk.stream === "stdout" ? options.onStdout : options.onStderr)?.(chunk.text);
      result = await stream.wait();
    } else {
      const json = bodyOf(program, options, { cancel_on_disconnect: true });
      result = new Result(await this.transport.call<Schemas["Execution"]>("POST", `${this.path}/executions`, {
        json, timeout: null, signal: options.signal, repeatable: options.key !== undefined,
      }));
    }
    return options.check ? result.check() : result;
  }

  /** Runs code in a new process, 60 seconds at most unless `timeout` says otherwise. */
  async execute(code: string, options: {
    language?: string; env?: Record<string, string>; secrets?: Record<string, string>; cwd?: string; timeout?: number; check?: boolean; signal?: AbortSignal;
  } = {}): Promise<Result> {
    const { check, signal, ...rest } = options;
    const result = new Result(await this.transport.call<Schemas["ExecuteResult"]>("POST", "/execute", {
      json: { code, session_id: this.id, ...rest, timeout: undefined, timeout_seconds: rest.timeout }, timeout: null, signal,
    }));
    return check ? result.check() : result;
  }

  /** Runs a program and iterates over its output, exact bytes, as it comes. */
  async stream(program: Program, options: StartOptions & { signal?: AbortSignal } = {}): Promise<Stream> {
    const [process, answer] = await this.begin(program, options);
    return new Stream(process, answer);
  }

  private async begin(program: Program, options: StartOptions & { signal?: AbortSignal }) {
    const answer = await this.transport.open("POST", `${this.path}/executions`, {
      json: bodyOf(program, options, { cancel_on_disconnect: true }), headers: { Accept: "text/event-stream" }, timeout: null, signal: options.signal,
    });
    return [new Process(this, { id: answer.header("x-sandglass-execution-id") }), answer] as const;
  }

  /** Starts a program with a terminal: iterate over what it prints, `write()` what is typed, `resize()`, `kill()`. */
  async pty(program: Program = ["/bin/bash"], options: StartOptions & { cols?: number; rows?: number; signal?: AbortSignal } = {}): Promise<Pty> {
    const { cols = 80, rows = 24, ...rest } = options;
    const [process, answer] = await this.begin(program, { ...rest, stdin: true, tty: { cols, rows } });
    return new Pty(process, answer);
  }

  /** Starts a program and returns at once. */
  async start(program: Program, options: StartOptions = {}): Promise<Process> {
    return new Process(this, await this.transport.call<Schemas["Execution"]>("POST", `${this.path}/executions`, {
      json: bodyOf(program, options, { background: true }), repeatable: options.key !== undefined,
    }));
  }

  /** A handle of an execution by its id; nothing is asked yet. */
  execution(id: string): Process { return new Process(this, { id }); }

  /** All executions of the session, the newest first. */
  async executions(options: { state?: string } = {}): Promise<Process[]> {
    const found: Process[] = [];
    for (let cursor: string | null | undefined; ;) {
      const page: Schemas["ExecutionList"] = await this.transport.call("GET", `${this.path}/executions`, { query: { ...options, cursor } });
      found.push(...page.executions.map((raw) => new Process(this, raw)));
      cursor = page.next_cursor;
      if (!cursor) return found;
    }
  }

  /** Starts an interpreter that keeps its variables. */
  async context(options: Schemas["CreateContext"] = {}): Promise<Context> {
    return new Context(this, await this.transport.call("POST", `${this.path}/contexts`, { json: options }));
  }

  /** The interpreters of the session. */
  async contexts(): Promise<Context[]> {
    const found = await this.transport.entries<Schemas["Context"]>(`${this.path}/contexts`, "contexts");
    return found.map((raw) => new Context(this, raw));
  }

  /** Runs code as a cell of a notebook: variables stay for the next one. */
  async runCode(code: string, options: RunCodeOptions & { language?: string } = {}): Promise<CodeResult> {
    const language = options.language ?? "python";
    if (!this.ownContexts.has(language)) this.ownContexts.set(language, this.context({ language }));
    try {
      return await (await this.ownContexts.get(language)!).run(code, options);
    } catch (problem) {
      if (problem instanceof NotFound) this.ownContexts.delete(language);
      throw problem;
    }
  }

  /** Calls a tool of a model, as `Client.tools()` lists them. That it failed is a result with `isError`. */
  async callTool(name: string, args: Record<string, unknown> = {}, options: { client?: string } = {}): Promise<ToolResult> {
    return new ToolResult(await this.transport.call("POST", `${this.path}/tools/${name}`, { json: args, query: options, timeout: null }));
  }

  /** TCP ports that programs in the sandbox listen on. */
  async ports(): Promise<Schemas["Port"][]> {
    return this.transport.entries(`${this.path}/ports`, "ports");
  }

  /** A signed URL with which a port can be used without credentials, for `expires` seconds. */
  async portUrl(port: number, options: { expires?: number } = {}): Promise<Schemas["PortUrl"]> {
    return this.transport.call("POST", `${this.path}/ports/${port}/url`, { json: { valid_seconds: options.expires } });
  }

  /** An HTTP request to a server in the sandbox. Statuses of 400 and more throw. */
  async requestPort(port: number, path = "/", options: { method?: string; body?: string | Uint8Array; headers?: Record<string, string> } = {}): Promise<{ status: number; body: Uint8Array }> {
    const { method = "GET", ...rest } = options;
    const answer = await this.transport.open(method, `${this.path}/ports/${port}/${path.replace(/^\//, "")}`, rest);
    return { status: answer.status, body: await answer.bytes() };
  }

  /** Makes the sandbox, or asks for another; the approval when a person has to decide first, and nothing has changed. */
  async sandbox(options: Schemas["ChangeSandbox"] = {}): Promise<Approval | undefined> {
    const answer = await this.transport.call<Schemas["SessionChange"] | Schemas["ApprovalRequest"]>("POST", `${this.path}/sandbox`, { json: options });
    if ("kind" in answer) return new Approval(this.transport, answer);
    this.raw = answer;
    return undefined;
  }

  /** The budget of the session, and that of its owner. */
  async budget(): Promise<Schemas["Budget"]> { return this.transport.call("GET", `${this.path}/budget`); }

  /** Changes its cap, and whether what fits under it is approved automatically. Only approvers can raise a cap. */
  async setBudget(change: Schemas["UpdateSessionBudget"]): Promise<Schemas["Budget"]> {
    return this.transport.call("PATCH", `${this.path}/budget`, { json: change });
  }

  /** The usage of its sandbox now; null without a sandbox. */
  async usage(): Promise<Schemas["Usage"] | null> {
    return (await this.change("GET", "?usage=1")).usage;
  }

  /** The usage of its sandbox over time: samples, only those after the time `since`. */
  async usageHistory(options: { since?: string } = {}): Promise<Schemas["UsageHistory"]> {
    return this.transport.call("GET", `${this.path}/usage`, { query: options });
  }

  /** The session as it is now, with its sandbox and clocks. Looking is not use: no clock is moved. */
  refresh(): Promise<Schemas["Session"]> { return this.change("GET", ""); }

  /** Its lease ends `timeout` seconds from now; never earlier than before unless `exact`. */
  keepalive(timeout?: number, exact = false): Promise<Schemas["Session"]> { return this.change("POST", "/keepalive", { lease_seconds: timeout, exact }); }

  /** Changes labels, clocks and policy. */
  update(fields: Schemas["UpdateSession"]): Promise<Schemas["Session"]> { return this.change("PATCH", "", fields); }

  /** Freezes everything in it. */
  pause(): Promise<Schemas["Session"]> { return this.change("POST", "/pause", {}); }

  /** Lets it go on. */
  resume(): Promise<Schemas["Session"]> { return this.change("POST", "/resume", {}); }

  /** Takes its sandbox away; the session stays and the next use makes a new one. */
  teardown(): Promise<Schemas["Session"]> { return this.change("POST", "/sandbox/teardown", {}); }

  /** A URL with which a closing web page takes the sandbox away: no credentials are needed. */
  async teardownUrl(options: Schemas["CreateTeardownUrl"] = {}): Promise<Schemas["TeardownToken"]> {
    return this.transport.call("POST", `${this.path}/teardown-token`, { json: options });
  }

  /** The events of the session, from the first or from behind number `after`; with `follow` also later ones, until it has ended. */
  async *events(options: { after?: number; follow?: boolean } = {}): AsyncGenerator<Event> {
    for await (const event of readEvents(this.transport, `${this.path}/events`, options.after, options.follow ?? false)) {
      yield event;
      if (event.type === "session.ended") return;
    }
  }

  /** All that is kept of it, in order: events, those of type "execution.ended" with the execution. */
  async *history(options: { output?: boolean } = {}): AsyncGenerator<Schemas["HistoryEntry"]> {
    for (let cursor: string | null | undefined; ;) {
      const page: Schemas["History"] = await this.transport.call("GET", `${this.path}/history`, { query: { output: options.output ?? true, cursor } });
      yield* page.entries;
      cursor = page.next_cursor;
      if (cursor === null) return;
    }
  }

  /** Ends it; resolves with its final record when its sandbox is gone. */
  delete(): Promise<Schemas["Session"]> { return this.change("DELETE", ""); }

  /** As `delete()`, and fine if it has ended already. */
  async close(): Promise<void> {
    try {
      await this.delete();
    } catch (problem) {
      if (!(problem instanceof NotFound || problem instanceof Gone)) throw problem;
    }
  }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
