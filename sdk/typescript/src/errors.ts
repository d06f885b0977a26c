// SPDX-License-Identifier: Apache-2.0
import type { Schemas } from "./schema.js";
import type { CodeResult, Result } from "./models.js";

/** More about an error. */
export interface ErrorOptions {
  code?: string;
  status?: number;
  hint?: string;
  retryable?: boolean;
  requestId?: string;
  detail?: Partial<Schemas["Error"]>;
}

/**
 * The daemon refused or failed, or could not be reached. `code` is the stable name of the error ("session_not_found"), `status` that of
 * HTTP (0 when there was no answer), `hint` what would help, `retryable` whether the same request may succeed later.
 */
export class SandglassError extends Error {
  readonly code: string;
  readonly status: number;
  readonly hint: string;
  readonly retryable: boolean;
  readonly requestId: string;
  readonly detail: Partial<Schemas["Error"]>;

  constructor(message: string, options: ErrorOptions = {}) {
    super(options.hint ? `${message} (${options.hint})` : message);
    this.name = new.target.name;
    this.code = options.code ?? "unknown";
    this.status = options.status ?? 0;
    this.hint = options.hint ?? "";
    this.retryable = options.retryable ?? false;
    this.requestId = options.requestId ?? "";
    this.detail = options.detail ?? {};
  }
}

/** No daemon there, it went away in the middle of an answer, or it is starting or stopping. */
export class Unavailable extends SandglassError {}
/** The request is wrong: an unknown field, a value out of range. */
export class Invalid extends SandglassError {}
/** No credentials, or wrong ones. */
export class Unauthorized extends SandglassError {}
/** These credentials do not allow it. */
export class Forbidden extends SandglassError {}
/** There is no such thing, or it belongs to another owner. */
export class NotFound extends SandglassError {}
/** There is no such file, or it is not a directory. */
export class FileNotFound extends NotFound {}
/** It exists with other parameters, has moved on to another generation, or is in the wrong state. */
export class Conflict extends SandglassError {}
/** It existed and has ended: `reason` says why ("idle", "lease", "deleted", "crashed: oom"). */
export class Gone extends SandglassError {
  /** Why it ended. */
  get reason(): string {
    return this.detail.error?.reason ?? "";
  }
}
/** A limit was reached; `retryAfter` is the number of seconds after which it may work. */
export class LimitReached extends SandglassError {
  retryAfter = 1;
}
/** There is no space left in the sandbox. */
export class DiskFull extends LimitReached {}
/** The sandbox could not be made or was lost. */
export class BackendFailed extends SandglassError {}
/** It did not become ready in time. */
export class NotReady extends SandglassError {}

/** A program did not end with exit code 0; `result` is all that is known of it. */
export class ExecutionFailed extends SandglassError {
  constructor(message: string, readonly result: Result) {
    super(message, { code: "execution_failed" });
  }
}

/** Code in a context ended with an exception, or was stopped; `result` has all of it. */
export class CodeFailed extends SandglassError {
  constructor(message: string, readonly result: CodeResult) {
    super(message, { code: "code_failed" });
  }
}

type Kind = new (message: string, options?: ErrorOptions) => SandglassError;

const byStatus: Record<number, Kind> = {
  400: Invalid, 401: Unauthorized, 403: Forbidden, 404: NotFound, 405: Invalid, 409: Conflict, 410: Gone, 412: Conflict, 413: Invalid,
  415: Invalid, 416: Invalid, 429: LimitReached, 502: BackendFailed, 503: Unavailable, 504: NotReady, 507: LimitReached,
};

const byCode: Record<string, Kind> = { file_not_found: FileNotFound, no_space: DiskFull };

export function errorFrom(status: number, header: (name: string) => string, text: string): SandglassError {
  let detail: Partial<Schemas["Error"]> = {};
  try {
    detail = JSON.parse(text) as Partial<Schemas["Error"]>;
  } catch {
    // An answer that is not ours: the status has to do.
  }
  const said = detail.error;
  const kind = (status === 404 || status === 507 ? byCode[said?.code ?? ""] : undefined) ?? byStatus[status] ?? SandglassError;
  const error = new kind(said?.message ?? `the daemon answered ${status}`, {
    code: said?.code, status, hint: said?.hint, retryable: said?.retryable, requestId: header("x-request-id"), detail,
  });
  if (error instanceof LimitReached) error.retryAfter = Number(header("retry-after")) || 1;
  return error;
}
