// SPDX-License-Identifier: Apache-2.0
// The daemon: requests with the cookie of this browser, and streams of events that go on after a break.

export interface Limits { memory_bytes: number | null; cpus: number | null; pids: number | null; disk_bytes: number | null }
export interface Usage { cpu_seconds: number; memory_bytes: number; memory_peak_bytes: number; disk_bytes: number; pids: number; measured_at: string }
export interface Isolation {
  backend: string; namespaces?: string[]; seccomp?: string; no_new_privs?: boolean; landlock_abi?: number; boundary?: string;
  capabilities?: { init_effective?: string; bounding?: string }; uids?: { first: number; count: number }; network?: string; missing?: string[];
  limits?: Record<string, unknown>; [more: string]: unknown;
}
export interface Session {
  id: string; owner: string; key: string | null; on_behalf_of: string | null; labels: Record<string, string>; state: string; end_reason: string | null;
  generation: number; template: string; flavor: string; choice: string; backend: string; network: string; limits: Limits; keep_files: boolean;
  lease_seconds: number | null; idle_timeout_seconds: number | null; max_lifetime_seconds: number | null; created_at: string; last_activity_at: string; ended_at: string | null;
  time_remaining_seconds: number | null; time_remaining_clock: string | null; lease_remaining_seconds: number | null; idle_remaining_seconds: number | null;
  lifetime_remaining_seconds: number | null; kept_alive_by: unknown; spent_usd: number; approval: string | null | { id: string };
  sandbox: { id: string | null; state: string; generation: number; error: { message: string; code: string } | null; previous_end: string | null; isolation: Isolation | null };
  usage: Usage | null; executions: { running: number; total: number }; on_timeout: string; auto_restart: boolean; node?: string;
  kept: unknown;
}
export interface Execution {
  id: string; session_id: string; key: string | null; state: string; exit_code: number | null; signal: string | null; reason: string | null; error: { code: string; message: string } | null;
  background: boolean; created_at: string; started_at: string | null; ended_at: string | null; duration_seconds: number | null; cpu_seconds: number | null;
  max_memory_bytes: number | null; stdout_bytes: number; stderr_bytes: number; stdout?: string; stderr?: string; truncated?: boolean;
  request: { language?: string; code?: string; argv?: string[]; command?: string; tty?: unknown; context?: string };
}
export interface Approval {
  id: string; state: string; session: string; owner: string; requested_by: string; on_behalf_of: string | null; flavor: string; price_per_hour: number | null;
  estimated_usd: number | null; question: string; created_at: string; expires_at: string; decided_by: string | null; decision_reason: string | null; result: string | null;
}
export interface Whoami { owner: string; principal: string; roles: string[]; auth_mode: string; operator: boolean }
export interface ServerEvent { id: number; type: string; data: { session_id?: string; time?: string; data?: Record<string, unknown>; [more: string]: unknown } }

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string, readonly hint: string) { super(message); }
  /** With the remedy behind it. */
  get full(): string { return this.hint ? `${this.message} (${this.hint})` : this.message; }
}

export function explain(error: unknown): string {
  if (error instanceof ApiError) return error.full;
  if (error instanceof DOMException && error.name === "AbortError") return "stopped";
  return error instanceof TypeError ? "the daemon cannot be reached" : String(error);
}

/** The directory of this page, whatever a proxy has put before it. */
export const base = new URL(".", document.baseURI);
export const url = (path: string): URL => new URL(path, base);

export let me: Whoami = { owner: "", principal: "", roles: [], auth_mode: "none", operator: false };
export function setMe(who: Whoami): void { me = who; }

const lostLogin: (() => void)[] = [];
export function onLoginLost(call: () => void): void { lostLogin.push(call); }

export interface Options {
  body?: unknown; bytes?: BodyInit; headers?: Record<string, string>; signal?: AbortSignal; owner?: string | null; quiet?: boolean;
}

/** Header values are bytes: the UTF-8 of the owner. */
function headerBytes(text: string): string {
  return Array.from(new TextEncoder().encode(text), byte => String.fromCharCode(byte)).join("");
}

/** Without authentication an operator acts for the owner of what is on the screen. */
function ownerHeaders(owner: string | null | undefined): Record<string, string> {
  return owner && me.auth_mode === "none" && owner !== me.owner ? { "X-Sandglass-On-Behalf-Of": headerBytes(owner) } : {};
}
export const needsOwnerHeader = (owner: string): boolean => Object.keys(ownerHeaders(owner)).length > 0;

async function failure(answer: Response): Promise<ApiError> {
  try {
    const { error } = await answer.json();
    return new ApiError(answer.status, error.code, error.message, error.hint ?? "");
  } catch {
    return new ApiError(answer.status, "unknown", `the daemon answered ${answer.status}`, "");
  }
}

/** The whole answer as it comes; errors are thrown. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { "X-Sandglass-Page": "1", ...ownerHeaders(options.owner), ...options.headers };
  let body: BodyInit | undefined = options.bytes;
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(options.body);
  } else if (options.bytes !== undefined) {
    headers["Content-Type"] = "application/octet-stream";
  }
  const answer = await fetch(url(path), { method, headers, body, signal: options.signal, credentials: "same-origin", cache: "no-store" });
  if (answer.ok) return answer;
  const error = await failure(answer);
  if (answer.status === 401 && !options.quiet) for (const call of lostLogin) call();
  throw error;
}

export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  return (await send(method, path, options)).json() as Promise<T>;
}

export const get = <T>(path: string, options: Options = {}): Promise<T> => call<T>("GET", path, options);

/** Requests about one session, for its owner. */
export class SessionApi {
  constructor(readonly id: string, readonly owner: string) {}
  path(suffix: string): string { return `api/v1/sessions/${encodeURIComponent(this.id)}${suffix}`; }
  send(method: string, suffix: string, options: Options = {}): Promise<Response> { return send(method, this.path(suffix), { owner: this.owner, ...options }); }
  call<T>(method: string, suffix: string, options: Options = {}): Promise<T> { return call<T>(method, this.path(suffix), { owner: this.owner, ...options }); }
  get<T>(suffix: string, options: Options = {}): Promise<T> { return this.call<T>("GET", suffix, options); }
}

// --- Server-Sent Events ---------------------------------------------------------------------------

export interface RawEvent { id: string; event: string; data: string }

/** Events of one answer as they come. */
export async function* events(answer: Response): AsyncGenerator<RawEvent> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += value;
      for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
        const event: RawEvent = { id: "", event: "message", data: "" };
        for (const line of held.slice(0, end).split("\n")) {
          const colon = line.indexOf(":");
          const name = line.slice(0, colon), text = line.slice(colon + 1).replace(/^ /, "");
          if (name === "id") event.id = text;
          else if (name === "event") event.event = text;
          else if (name === "data") event.data += event.data ? `\n${text}` : text;
        }
        held = held.slice(end + 2);
        if (event.data) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

export const sleep = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms));

/** Follows a stream of events for good: breaks are bridged with Last-Event-ID. Returns how to stop. */
export function follow(path: string, handlers: { onEvent(event: ServerEvent): void; onState(state: "live" | "lost", wasLost: boolean): void }): () => void {
  let abort = new AbortController(), stopped = false, last = "", wait = 250, wasLost = false, hiddenAt = 0;
  async function once(): Promise<void> {
    abort = new AbortController();
    const answer = await send("GET", path, { signal: abort.signal, headers: last ? { "Last-Event-ID": last } : {} });
    handlers.onState("live", wasLost);
    wasLost = false;
    wait = 250;
    for await (const raw of events(answer)) {
      if (raw.id) last = raw.id;
      handlers.onEvent({ id: Number(raw.id), type: raw.event, data: JSON.parse(raw.data) });
    }
  }
  // A browser has six connections to a host: a page that nobody sees gives its own back after a while.
  const onVisible = (): void => {
    if (document.hidden) hiddenAt = Date.now();
    else hiddenAt = 0;
  };
  const timer = setInterval(() => { if (hiddenAt && Date.now() - hiddenAt > 60000) abort.abort(); }, 5000);
  document.addEventListener("visibilitychange", onVisible);
  void (async () => {
    while (!stopped) {
      try {
        await once();
      } catch (error) {
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) break;
      }
      if (stopped) break;
      const isAsleep = hiddenAt && Date.now() - hiddenAt > 60000;
      if (!isAsleep) handlers.onState("lost", true);
      wasLost = true;
      await sleep(wait);
      wait = Math.min(wait * 2, 3000);
      while (!stopped && hiddenAt && Date.now() - hiddenAt > 60000) await sleep(500);
    }
    clearInterval(timer);
    document.removeEventListener("visibilitychange", onVisible);
  })();
  return () => { stopped = true; abort.abort(); };
}
