// SPDX-License-Identifier: Apache-2.0
/** Sandglass: sandboxes for untrusted programs. */
export { Approval } from "./approval.js";
export { Client } from "./client.js";
export { Context, type RunCodeOptions } from "./context.js";
export {
  BackendFailed, CodeFailed, Conflict, DiskFull, ExecutionFailed, FileNotFound, Forbidden, Gone, Invalid, LimitReached, NotFound, NotReady,
  SandglassError, Unauthorized, Unavailable, type ErrorOptions,
} from "./errors.js";
export { Process, Pty, Stream, type Offsets } from "./execution.js";
export { Files, Kept, Storage, Watch, type FileChange } from "./files.js";
export { CodeResult, CodeValue, Result, ToolResult, type Chunk, type Program } from "./models.js";
export type { Schemas } from "./schema.js";
export { Scope } from "./scope.js";
export { Session, type Event, type RunOptions, type StartOptions } from "./session.js";
export type { Body, ClientOptions, Logger } from "./transport.js";
