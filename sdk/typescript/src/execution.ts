// SPDX-License-Identifier: Apache-2.0
import { Conflict, Unavailable } from "./errors.js";
import { chunkOf, Result, type Chunk } from "./models.js";
import type { Schemas } from "./schema.js";
import type { Session } from "./session.js";
import type { Answer } from "./transport.js";

const ended = ["exited", "timeout", "output_limit", "cancelled", "crashed"];
const lostSeconds = 30;
const waitSeconds = 60;

export interface Offsets {
  stdout: number;
  stderr: number;
}

/** An execution by its id: started by `Session.start`, or any other that the daemon knows. */
export class Process {
  readonly id: string;
  readonly path: string;
  /** The state of the execution, as it was last seen. */
  raw: Partial<Schemas["Execution"]>;

  constructor(readonly session: Session, raw: Partial<Schemas["Execution"]> & { id: string }) {
    this.raw = raw;
    this.id = raw.id;
    this.path = `${session.path}/executions/${raw.id}`;
  }

  /** As it was last seen; `refresh()` asks again. */
  get state(): string { return this.raw.state ?? ""; }

  /** Whether it had ended when it was last seen. */
  get hasEnded(): boolean { return ended.includes(this.state); }

  /** The state of the execution now; with `wait`, at its end but not later than that many seconds. */
  async refresh(wait = 0): Promise<Schemas["Execution"]> {
    const raw = await this.session.transport.call<Schemas["Execution"]>("GET", this.path, { query: { wait_seconds: wait || undefined }, timeout: wait + 60 });
    this.raw = raw;
    return raw;
  }

  /** Its result, when it has ended. Throws an `Error` after `timeout` seconds: the program goes on then. */
  async wait(timeout?: number): Promise<Result> {
    const deadline = timeout === undefined ? Infinity : Date.now() + timeout * 1000;
    for (;;) {
      await this.refresh(Math.max(0, Math.min(waitSeconds, (deadline - Date.now()) / 1000)));
      if (this.hasEnded) return new Result(this.raw);
      if (Date.now() >= deadline) throw new Error(`execution ${this.id} has not ended within ${timeout} s`);
    }
  }

  /** Waits until it has written a text, or until something in the sandbox listens on a port; `met` says whether. */
  async waitFor(condition: { output?: string; port?: number; stream?: string; offset?: number; timeout?: number }): Promise<Schemas["WaitResult"]> {
    return this.session.transport.call("GET", `${this.path}/wait`, {
      query: { ...condition, timeout: undefined, timeout_seconds: condition.timeout }, timeout: (condition.timeout ?? 30) + 60,
    });
  }

  /** Writes to its input; it was started with `stdin: true`. Resolves when the program's pipe has taken all of it. */
  async write(data: string | Uint8Array): Promise<number> {
    return (await this.send(data, false)).written;
  }

  /** The program reads the end of its input. */
  async closeStdin(): Promise<void> {
    await this.send("", true);
  }

  private send(data: string | Uint8Array, eof: boolean): Promise<Schemas["StdinWritten"]> {
    return this.session.transport.call("POST", `${this.path}/stdin`, {
      query: { eof: eof || undefined }, body: data, headers: { "Content-Type": "application/octet-stream" }, timeout: null,
    });
  }

  /** Sends it a signal, by number or name; with `tree` to all processes that it has started, too. */
  async signal(signal: number | string, tree = false): Promise<void> {
    await this.session.transport.call("POST", `${this.path}/signal`, { json: { signal, tree } });
  }

  /** Changes the size of its terminal. */
  async resize(cols: number, rows: number): Promise<void> {
    await this.session.transport.call("POST", `${this.path}/resize`, { json: { cols, rows } });
  }

  /** Ends it with its whole process tree; resolves when it has ended. */
  async cancel(): Promise<Result> {
    this.raw = await this.session.transport.call<Schemas["Execution"]>("DELETE", this.path, { timeout: null });
    return new Result(this.raw);
  }

  /** The output so far, from `offset` on, counted from its first byte. */
  async output(options: { stream?: "stdout" | "stderr" | "merged"; offset?: number } = {}): Promise<Uint8Array> {
    return (await this.session.transport.open("GET", `${this.path}/output`, { query: options })).bytes();
  }

  /** The output from `offset` on, as it comes, until the program has ended. */
  async *follow(options: { stream?: "stdout" | "stderr" | "merged"; offset?: number } = {}): AsyncGenerator<Uint8Array> {
    const answer = await this.session.transport.open("GET", `${this.path}/output`, { query: { ...options, follow: true }, timeout: null });
    yield* answer.pieces();
  }

  /** Its output as it comes, from these offsets on. Leaving it does not cancel the program. */
  attach(offsets: Partial<Offsets> = {}): Stream {
    return new Stream(this, undefined, { stdout: 0, stderr: 0, ...offsets });
  }
}

/**
 * The output of a program while it runs: `for await (const chunk of stream)`. Leaving a stream of `Session.stream` cancels the
 * program. A connection that breaks is taken up again where it was, so that no byte is missing or doubled.
 */
export class Stream implements AsyncIterable<Chunk> {
  private isClosed = false;
  private result: Result | undefined;
  private readonly chunks: AsyncGenerator<Chunk>;

  constructor(readonly process: Process, private answer: Answer | undefined, readonly offsets: Offsets = { stdout: 0, stderr: 0 }) {
    this.chunks = this.read();
  }

  /** The chunks; an iteration that is left early closes the stream. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk> {
    try {
      for (;;) {
        const next = await this.chunks.next();
        if (next.done) return;
        yield next.value;
      }
    } finally {
      if (!this.result) this.close();
    }
  }

  /** Reads to the end and returns the result. */
  async wait(): Promise<Result> {
    while (!(await this.chunks.next()).done);
    this.result ??= await this.process.wait();
    return this.result;
  }

  /** Hangs up; a program that `Session.stream` has started and that still runs is cancelled. */
  close(): void {
    this.isClosed = true;
    this.drop();
  }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  private drop(): void {
    this.answer?.close();
    this.answer = undefined;
  }

  private async *read(): AsyncGenerator<Chunk> {
    let lostSince = 0;
    while (!this.result && !this.isClosed) {
      try {
        this.answer ??= await this.process.session.transport.open("GET", `${this.process.path}/stream`, {
          query: { ...this.offsets }, headers: { Accept: "text/event-stream" }, timeout: null,
        });
        for await (const chunk of this.readEvents(this.answer)) {
          lostSince = 0;
          yield chunk;
        }
      } catch (problem) {
        if (this.isClosed) return;
        if (problem instanceof Conflict) yield* this.readRest();
        else if (!(problem instanceof Unavailable)) throw problem;
        else if (lostSince && Date.now() - lostSince > lostSeconds * 1000) throw problem;
        else {
          lostSince ||= Date.now();
          await new Promise((done) => setTimeout(done, 100));
        }
      } finally {
        this.drop();
      }
    }
  }

  private async *readEvents(answer: Answer): AsyncGenerator<Chunk> {
    for await (const { name, data } of answer.events()) {
      if (name === "stdout" || name === "stderr") {
        const chunk = chunkOf(name, JSON.parse(data) as Schemas["OutputEvent"]);
        this.offsets[name] = chunk.offset + chunk.data.length;
        yield chunk;
      } else if (name === "exit") this.result = new Result(await this.process.refresh());
    }
  }

  private async *readRest(): AsyncGenerator<Chunk> {
    for (const stream of ["stdout", "stderr"] as const) {
      const offset = this.offsets[stream];
      const data = await this.process.output({ stream, offset });
      this.offsets[stream] += data.length;
      if (data.length) yield { stream, data, offset, text: new TextDecoder().decode(data) };
    }
    this.result = new Result(await this.process.refresh());
  }
}

/** A program with a terminal: what it prints is iterated over, `write()` types. Leaving it ends the program. */
export class Pty extends Stream {
  /** Types something. */
  write(data: string | Uint8Array): Promise<number> { return this.process.write(data); }
  /** Changes the size of the terminal. */
  resize(cols: number, rows: number): Promise<void> { return this.process.resize(cols, rows); }
  /** Ends the program. */
  kill(): Promise<Result> { return this.process.cancel(); }
}
