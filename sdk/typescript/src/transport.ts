// SPDX-License-Identifier: Apache-2.0
import { errorFrom, SandglassError, Unavailable } from "./errors.js";

/** Bytes, text, or pieces of bytes as they come. */
export type Body = string | Uint8Array | AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>;

export type Query = Record<string, string | number | boolean | string[] | null | undefined>;

/** The methods that a logger needs; `console` fits. */
export interface Logger {
  debug(message: string): void;
  info(message: string): void;
}

/** Where the daemon is, who asks, and how requests are sent. */
export interface ClientOptions {
  /** `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`; without it `SANDGLASS_URL`, else the default socket. */
  url?: string;
  /** Proves who asks; without it `SANDGLASS_API_KEY`. */
  apiKey?: string;
  /** For whom; without it `SANDGLASS_ON_BEHALF_OF`. */
  owner?: string;
  /** Seconds that a request may wait for the daemon; without it as long as it takes. Programs have their own timeouts. */
  timeout?: number;
  /** How often a request that can do no harm twice is repeated while the daemon is not there or not ready: 2. */
  retries?: number;
  /** Sent with each request. */
  headers?: Record<string, string>;
  /** `http://HOST:PORT`; not in browsers. */
  proxy?: string;
  /** Gets a line for each request (debug) and each repetition (info). */
  logger?: Logger;
}

export interface RequestOptions {
  query?: Query;
  body?: Body;
  json?: unknown;
  headers?: Record<string, string>;
  /** Seconds; null: none, however long it takes. */
  timeout?: number | null;
  repeatable?: boolean;
  signal?: AbortSignal;
}

interface Wire {
  method: string;
  target: string;
  headers: Record<string, string>;
  body: Body | undefined;
  signal: AbortSignal;
}

/** An answer whose head has come. */
export class Answer {
  constructor(
    readonly status: number,
    private readonly get: (name: string) => string | null | undefined,
    readonly body: AsyncIterable<Uint8Array>,
    private readonly hangUp: () => void,
    private readonly signal: AbortSignal,
  ) {}

  header(name: string): string {
    return this.get(name) ?? "";
  }

  async bytes(): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.pieces()) pieces.push(piece);
    return join(pieces);
  }

  async text(): Promise<string> {
    return new TextDecoder().decode(await this.bytes());
  }

  async *pieces(): AsyncGenerator<Uint8Array> {
    try {
      for await (const piece of this.body) yield piece;
    } catch (problem) {
      throw this.signal.aborted ? aborted() : lost(problem);
    }
    if (this.signal.aborted) throw aborted();
  }

  /** Lines as they come. */
  async *lines(): AsyncGenerator<string> {
    const decoder = new TextDecoder();
    let held = "";
    for await (const piece of this.pieces()) {
      const whole = (held + decoder.decode(piece, { stream: true })).split("\n");
      held = whole.pop() ?? "";
      yield* whole;
    }
    if (held) yield held;
  }

  /** Server-Sent Events as they come. */
  async *events(): AsyncGenerator<{ name: string; data: string }> {
    let name = "message";
    let data: string[] = [];
    for await (const raw of this.lines()) {
      const line = raw.replace(/\r$/, "");
      if (!line) {
        if (data.length) yield { name, data: data.join("\n") };
        name = "message";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") name = value;
      else if (field === "data") data.push(value);
    }
  }

  close(): void {
    this.hangUp();
  }
}

export function join(pieces: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function aborted(): SandglassError {
  return new SandglassError("the request was aborted", { code: "aborted" });
}

function lost(problem: unknown): SandglassError {
  if (problem instanceof SandglassError) return problem;
  const name = (problem as Error)?.name;
  if (name === "TimeoutError")
    return new Unavailable("the daemon did not answer in time", { code: "request_timeout", retryable: true, hint: "give a larger timeout" });
  if (name === "AbortError") return aborted();
  return new Unavailable(`the connection to the daemon was lost: ${(problem as Error)?.message || String(problem)}`, {
    code: "connection_lost", retryable: true,
  });
}

const isNode = typeof process !== "undefined" && Boolean(process.versions?.node);

function environment(name: string): string | undefined {
  return isNode ? process.env[name] || undefined : undefined;
}

async function defaultUrl(): Promise<string> {
  const named = environment("SANDGLASS_URL");
  if (named) return named;
  if (!isNode) throw new SandglassError("a browser has to be told the url of the daemon", { code: "url_missing" });
  const { existsSync } = await import("node:fs");
  const system = "/run/sandglass/sandglass.sock";
  const user = process.geteuid?.() ?? 0;
  if (user === 0) return `unix:${system}`;
  const runtime = environment("XDG_RUNTIME_DIR") ?? "";
  const own = runtime.startsWith("/") ? `${runtime}/sandglass/sandglass.sock` : `/tmp/sandglass-${user}/sandglass.sock`;
  return `unix:${existsSync(own) || !existsSync(system) ? own : system}`;
}

/** The token of a daemon of this host that serves TCP without authentication; undefined where it is not ours to read. */
async function localToken(url: URL): Promise<string | undefined> {
  if (!isNode || !/^(localhost|127\..*|\[::1\])$/.test(url.hostname)) return undefined;
  const { readFileSync } = await import("node:fs");
  const read = (path: string) => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return undefined;
    }
  };
  const home = environment("HOME") ?? "";
  let state = environment("SANDGLASS_STATE_DIR");
  const settings = [environment("SANDGLASS_CONFIG"), "/etc/sandglass/sandglass.yaml",
    `${environment("XDG_CONFIG_HOME") ?? `${home}/.config`}/sandglass/sandglass.yaml`];
  for (const path of settings) {
    const text = state || !path ? undefined : read(path);
    if (text === undefined) continue;
    state = /^[\s{]*["']?state_dir["']?\s*:\s*["']?([^"',\s}#]+)/m.exec(text)?.[1];
    break;
  }
  state ??= process.geteuid?.() === 0 ? "/var/lib/sandglass" : `${environment("XDG_STATE_HOME") ?? `${home}/.local/state`}/sandglass`;
  return read(`${state}/token-${url.port || 7420}`)?.trim() || undefined;
}

function writeQuery(query: Query | undefined): string {
  const filled = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null) continue;
    for (const one of Array.isArray(value) ? value : [value]) filled.append(name, typeof one === "boolean" ? (one ? "1" : "0") : String(one));
  }
  const text = filled.toString();
  return text ? `?${text}` : "";
}

interface Place {
  socketPath?: string;
  url: URL;
  headers: Record<string, string>;
}

const pause = (seconds: number) => new Promise((done) => setTimeout(done, seconds * 1000));

/** Requests to one daemon. */
export class Transport {
  private place: Promise<Place> | undefined;
  private agents: { http: import("node:http").Agent; https: import("node:https").Agent } | undefined;

  constructor(readonly options: ClientOptions) {}

  get owner(): string {
    return this.options.owner ?? environment("SANDGLASS_ON_BEHALF_OF") ?? "";
  }

  async url(): Promise<string> {
    const place = await this.locate();
    return place.socketPath ? `unix:${place.socketPath}` : place.url.origin;
  }

  private locate(): Promise<Place> {
    this.place ??= this.find();
    return this.place;
  }

  private async find(): Promise<Place> {
    const given = this.options.url ?? (await defaultUrl());
    const socketPath = given.startsWith("unix:") ? given.replace(/^unix:(\/\/)?/, "") : undefined;
    const url = new URL(socketPath ? "http://localhost" : given.includes("://") ? given : `http://${given}`);
    if (url.protocol !== "http:" && url.protocol !== "https:")
      throw new SandglassError(`${given} is neither unix:PATH nor http://HOST:PORT`, { code: "invalid_url" });
    if (!socketPath && !url.port && url.protocol === "http:" && isNode) url.port = "7420";
    const headers: Record<string, string> = { "X-Sandglass-Surface": "sdk", ...this.options.headers };
    const key = this.options.apiKey ?? environment("SANDGLASS_API_KEY") ?? (socketPath ? undefined : await localToken(url));
    if (key) headers["Authorization"] = `Bearer ${key}`;
    if (this.owner) headers["X-Sandglass-On-Behalf-Of"] = this.owner;
    return socketPath ? { socketPath, url, headers } : { url, headers };
  }

  /** Sends a request; the answer's body is the caller's to read. Errors of the daemon are thrown. */
  async open(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const target = `/api/v1${path}${writeQuery(options.query)}`;
    const isStream = options.body !== undefined && typeof options.body !== "string" && !(options.body instanceof Uint8Array);
    const repeats = (options.repeatable ?? method !== "POST") && !isStream;
    for (let attempt = 0; ; attempt++) {
      const begin = Date.now();
      try {
        const answer = await this.once(method, target, options);
        this.options.logger?.debug(`${method} ${target}: ${answer.status} in ${Date.now() - begin} ms`);
        return answer;
      } catch (problem) {
        const error = lost(problem);
        if (!(error instanceof Unavailable) || error.code === "request_timeout" || !repeats || attempt >= (this.options.retries ?? 2)) throw error;
        this.options.logger?.info(`${method} ${target} failed (${error.code}), once more`);
        await pause(Math.min(0.1 * 2 ** attempt, 2));
      }
    }
  }

  private async once(method: string, target: string, options: RequestOptions): Promise<Answer> {
    const place = await this.locate();
    const control = new AbortController();
    const seconds = options.timeout === undefined ? this.options.timeout : options.timeout;
    const timer = seconds == null ? undefined
      : setTimeout(() => control.abort(new DOMException("the daemon did not answer in time", "TimeoutError")), seconds * 1000);
    const signal = options.signal ? AbortSignal.any([control.signal, options.signal]) : control.signal;
    const headers = { ...place.headers, ...options.headers };
    let body = options.body;
    if (options.json !== undefined) {
      headers["Content-Type"] = "application/json";
      body = JSON.stringify(options.json);
    }
    try {
      const wire = { method, target, headers, body, signal };
      const answer = await (isNode ? this.sendByNode(place, wire) : this.sendByFetch(place, wire));
      if (answer.status < 400) return answer;
      throw errorFrom(answer.status, (name) => answer.header(name), await answer.text());
    } catch (problem) {
      if (options.signal?.aborted) throw aborted();
      throw lost(control.signal.aborted ? control.signal.reason : problem);
    } finally {
      clearTimeout(timer);
    }
  }

  private async sendByFetch(place: Place, wire: Wire): Promise<Answer> {
    const body = wire.body as BodyInit | undefined;
    const answer = await fetch(new URL(wire.target, place.url), {
      method: wire.method, headers: wire.headers, body: body ?? null, signal: wire.signal, ...(body instanceof ReadableStream ? { duplex: "half" } : {}),
    } as RequestInit);
    return new Answer(answer.status, (name) => answer.headers.get(name), fromStream(answer.body), () => void answer.body?.cancel().catch(() => {}), wire.signal);
  }

  private async sendByNode(place: Place, wire: Wire): Promise<Answer> {
    const isSecure = place.url.protocol === "https:";
    const [http, https] = [await import("node:http"), await import("node:https")];
    this.agents ??= { http: new http.Agent({ keepAlive: true }), https: new https.Agent({ keepAlive: true }) };
    const options: import("node:https").RequestOptions = {
      method: wire.method, headers: wire.headers, path: wire.target, signal: wire.signal,
      agent: isSecure ? this.agents.https : this.agents.http,
      ...(place.socketPath ? { socketPath: place.socketPath } : { host: place.url.hostname.replace(/^\[|\]$/g, ""), port: place.url.port || 443 }),
    };
    if (this.options.proxy && !place.socketPath) await useProxy(options, new URL(this.options.proxy), place.url);
    return new Promise((resolve, reject) => {
      const request = (isSecure ? https : http).request(options, (message) => {
        const header = (name: string) => [message.headers[name.toLowerCase()]].flat()[0];
        resolve(new Answer(message.statusCode ?? 0, header, message as AsyncIterable<Uint8Array>, () => message.destroy(), wire.signal));
      });
      request.on("error", (problem: NodeJS.ErrnoException) => {
        const isAbsent = ["ECONNREFUSED", "ENOENT", "EACCES", "ENOTFOUND"].includes(problem.code ?? "");
        reject(isAbsent ? new Unavailable(`no daemon at ${place.socketPath ? `unix:${place.socketPath}` : place.url.origin}: ${problem.message}`, {
          code: "daemon_not_running", hint: "start one with 'sandglass serve'", retryable: true,
        }) : problem);
      });
      // The option `signal` is not heeded by every runtime.
      wire.signal.addEventListener("abort", () => {
        request.destroy();
        reject(wire.signal.reason);
      }, { once: true });
      void send(request, wire.body).catch(reject);
    });
  }

  /** A whole exchange of JSON. */
  async call<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const answer = await this.open(method, path, options);
    const text = await answer.text();
    return (text ? JSON.parse(text) : {}) as T;
  }

  /** The entries of a list, of all its pages. */
  async entries<T>(path: string, field: string, query: Query = {}): Promise<T[]> {
    const found: T[] = [];
    for (let cursor: string | null | undefined; ;) {
      const page = await this.call<Record<string, unknown>>("GET", path, { query: { ...query, cursor } });
      found.push(...(page[field] as T[]));
      cursor = page.next_cursor as string | null;
      if (!cursor) return found;
    }
  }

  close(): void {
    this.agents?.http.destroy();
    this.agents?.https.destroy();
    this.agents = undefined;
  }
}

async function send(request: import("node:http").ClientRequest, body: Body | undefined): Promise<void> {
  if (body === undefined || typeof body === "string" || body instanceof Uint8Array) {
    request.end(body);
    return;
  }
  for await (const piece of body instanceof ReadableStream ? fromStream(body) : body)
    if (!request.write(piece)) await new Promise((done) => request.once("drain", done));
  request.end();
}

async function* fromStream(stream: ReadableStream<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  const reader = stream?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** Through a proxy: with the whole URL as the path, or for TLS inside of a tunnel. */
async function useProxy(options: import("node:https").RequestOptions, proxy: URL, target: URL): Promise<void> {
  const [http, tls] = [await import("node:http"), await import("node:tls")];
  const name = `${target.hostname}:${target.port || 443}`;
  if (target.protocol === "http:") {
    Object.assign(options, { host: proxy.hostname, port: proxy.port || 80, path: `http://${name}${options.path}`, agent: undefined });
    options.headers = { ...(options.headers as Record<string, string>), Host: name };
    return;
  }
  const socket = await new Promise<import("node:stream").Duplex>((resolve, reject) => {
    const tunnel = http.request({ host: proxy.hostname, port: proxy.port || 80, method: "CONNECT", path: name });
    tunnel.on("connect", (message, made) => (message.statusCode === 200 ? resolve(made) : reject(new Error(`the proxy answered ${message.statusCode}`))));
    tunnel.on("error", reject);
    tunnel.end();
  });
  options.agent = undefined;
  options.createConnection = () => tls.connect({ socket, servername: target.hostname });
}
