// SPDX-License-Identifier: Apache-2.0
import { CodeFailed, ExecutionFailed } from "./errors.js";
import type { Schemas } from "./schema.js";

/** A list is an argv, a text is a line for the shell. */
export type Program = string | readonly string[];

/** Some bytes of an output, exactly as the program wrote them. */
export interface Chunk {
  stream: "stdout" | "stderr";
  data: Uint8Array;
  /** Of its first byte in the stream. */
  offset: number;
  text: string;
}

export function decodeBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

export function chunkOf(stream: "stdout" | "stderr", event: Schemas["OutputEvent"]): Chunk {
  const data = event.base64 !== undefined ? decodeBase64(event.base64) : new TextEncoder().encode(event.text ?? "");
  return { stream, data, offset: event.offset ?? 0, text: event.text ?? new TextDecoder().decode(data) };
}

function lastLine(text: string): string {
  return text.trim().split("\n").pop()?.slice(0, 120) ?? "";
}

/** An execution that has ended. `stdout` and `stderr` hold the beginning and the end of a long output (`truncated`). */
export class Result {
  readonly id: string;
  /** "exited", "timeout", "output_limit", "cancelled" or "crashed". */
  readonly state: string;
  /** null when a signal ended the program. */
  readonly exitCode: number | null;
  /** The number of the signal that ended it. */
  readonly signal: number | null;
  readonly reason: string;
  readonly error: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
  /** In seconds. */
  readonly duration: number;
  /** It ran in a new sandbox, without the files of the one before. */
  readonly filesWereReset: boolean;
  /** Of `execute()`: files of the workspace that are new or changed. */
  readonly outputFiles: string[];
  /** The session it ran in. */
  readonly sessionId: string;

  constructor(readonly raw: Partial<Schemas["Execution"]> & Partial<Omit<Schemas["ExecuteResult"], keyof Schemas["Execution"]>>) {
    this.id = raw.id ?? raw.execution_id ?? "";
    this.state = raw.state ?? "";
    this.exitCode = raw.exit_code ?? null;
    this.signal = raw.signal ?? null;
    this.reason = raw.reason ?? "";
    this.error = raw.error?.message ?? "";
    this.stdout = raw.stdout ?? "";
    this.stderr = raw.stderr ?? "";
    this.truncated = raw.truncated ?? false;
    this.duration = raw.duration_seconds ?? 0;
    this.filesWereReset = raw.files_were_reset ?? false;
    this.outputFiles = raw.output_files ?? [];
    this.sessionId = raw.session_id ?? "";
  }

  /** Whether it ended with exit code 0. */
  get ok(): boolean {
    return this.state === "exited" && this.exitCode === 0;
  }

  /** Itself if it ended with exit code 0; throws `ExecutionFailed` otherwise. */
  check(): this {
    if (this.ok) return this;
    const how = this.state !== "exited" ? `${this.state} ${this.reason || this.error}`.trim()
      : this.exitCode !== null ? `exit code ${this.exitCode}` : `signal ${this.signal}`;
    throw new ExecutionFailed(`execution ${this.id}: ${how}\n${this.stderr.slice(-2000)}`.trimEnd(), this);
  }

  /** For people: how it ended, and the last line of stderr. */
  toString(): string {
    const said = lastLine(this.stderr);
    return `<Result ${this.id} ${this.state} exit_code=${this.exitCode}${said ? ` stderr=${JSON.stringify(said)}` : ""}>`;
  }

  /** The text that `console.log` prints. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

/** A value of code: of its last expression (`isMain`), or a displayed one. `data` has it by media type. */
export class CodeValue {
  readonly isMain: boolean;
  readonly data: Record<string, unknown>;

  constructor(raw: Schemas["RunResult"]) {
    this.isMain = raw.type === "result";
    this.data = raw.data as Record<string, unknown>;
  }

  private textOf(media: string): string | undefined {
    const value = this.data[media];
    return value === undefined ? undefined : typeof value === "string" ? value : JSON.stringify(value);
  }

  private bytesOf(media: string): Uint8Array | undefined {
    const value = this.data[media];
    return typeof value === "string" ? decodeBase64(value) : undefined;
  }

  /** As plain text. */
  get text(): string | undefined { return this.textOf("text/plain"); }
  /** As HTML. */
  get html(): string | undefined { return this.textOf("text/html"); }
  /** As Markdown. */
  get markdown(): string | undefined { return this.textOf("text/markdown"); }
  /** As LaTeX. */
  get latex(): string | undefined { return this.textOf("text/latex"); }
  /** As an SVG image. */
  get svg(): string | undefined { return this.textOf("image/svg+xml"); }
  /** As a JSON value. */
  get json(): unknown { return this.data["application/json"]; }
  /** The bytes of a PNG image. */
  get png(): Uint8Array | undefined { return this.bytesOf("image/png"); }
  /** The bytes of a JPEG image. */
  get jpeg(): Uint8Array | undefined { return this.bytesOf("image/jpeg"); }
  /** The media types that there are. */
  get formats(): string[] { return Object.keys(this.data); }
}

/** Code that has run in a context. */
export class CodeResult {
  /** "ok", "error", "interrupted", "timeout", "crashed", "cancelled" or "failed". */
  readonly state: string;
  readonly stdout: string;
  readonly stderr: string;
  /** Values and displays, in their order. */
  readonly results: CodeValue[];
  /** The exception, if there was one. */
  readonly error: Schemas["RunError"] | null;
  /** In seconds. */
  readonly duration: number;
  /** The variables are gone. */
  readonly contextLost: boolean;
  readonly truncated: boolean;

  constructor(readonly raw: Partial<Schemas["Run"]>) {
    this.state = raw.state ?? "";
    this.stdout = raw.stdout ?? "";
    this.stderr = raw.stderr ?? "";
    this.results = (raw.results ?? []).map((value) => new CodeValue(value));
    this.error = raw.error ?? null;
    this.duration = raw.duration_seconds ?? 0;
    this.contextLost = raw.context_lost ?? false;
    this.truncated = raw.truncated ?? false;
  }

  /** Whether it ran to its end without an exception. */
  get ok(): boolean { return this.state === "ok"; }

  /** The value of the last expression as text. */
  get text(): string | undefined {
    return this.results.filter((value) => value.isMain).pop()?.text;
  }

  /** The PNG images that were displayed, in order. */
  get images(): Uint8Array[] {
    return this.results.flatMap((value) => value.png ?? []);
  }

  /** Itself if it is ok; throws `CodeFailed` otherwise. */
  check(): this {
    if (this.ok) return this;
    throw new CodeFailed(this.error ? `${this.error.name}: ${this.error.value}` : (this.raw.cause ?? this.state), this);
  }

  /** For people: how it ended. */
  toString(): string {
    const said = lastLine(this.stderr);
    return `<CodeResult ${this.state}${this.error ? ` ${this.error.name}: ${this.error.value}` : ""}${said ? ` stderr=${JSON.stringify(said)}` : ""}>`;
  }
}

/** The result of a tool. */
export class ToolResult {
  readonly content: Schemas["ToolContent"][];
  readonly isError: boolean;
  readonly structured: Record<string, unknown>;

  constructor(readonly raw: Schemas["ToolResult"]) {
    this.content = raw.content;
    this.isError = raw.is_error;
    this.structured = (raw.structured ?? {}) as Record<string, unknown>;
  }

  /** All parts that are text, for the model. */
  get text(): string {
    return this.content.flatMap((part) => (part.type === "text" ? (part.text ?? "") : [])).join("\n");
  }
}
