// SPDX-License-Identifier: Apache-2.0
// The output of an execution by offset: what is there, then what comes, across breaks.

import { ApiError, sleep, type Execution, type SessionApi } from "./api";

const TAIL = 256 * 1024; // of a long output only the end is shown at first

export interface Follower { stop(): void; done: Promise<void> }

/** Bytes from `offset` on (-1: about the last quarter of a MiB), until the program has ended. `onSkip` is told what is left out. */
export function followOutput(api: SessionApi, execution: Execution, stream: "stdout" | "merged", offset: number,
                             handlers: { onBytes(data: Uint8Array): void; onSkip?(bytes: number): void; onLink?(isThere: boolean): void; onEnd?(): void }): Follower {
  const abort = new AbortController();
  const path = `/executions/${execution.id}`;
  let at = offset, wait = 250;

  async function begin(): Promise<void> {
    if (at >= 0) return;
    const head = await api.send("HEAD", `${path}/output?stream=${stream}`, { signal: abort.signal });
    at = Math.max(0, Number(head.headers.get("X-Sandglass-Length") ?? 0) - TAIL);
    if (at) handlers.onSkip?.(at);
  }

  async function once(): Promise<void> {
    await begin();
    const answer = await api.send("GET", `${path}/output?stream=${stream}&offset=${at}&follow=1`, { signal: abort.signal });
    const start = Number(answer.headers.get("X-Sandglass-Offset") ?? at);
    if (start > at) { handlers.onSkip?.(start - at); at = start; }
    handlers.onLink?.(true);
    wait = 250;
    const reader = answer.body!.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      at += value.length;
      handlers.onBytes(value);
    }
  }

  async function run(): Promise<void> {
    while (!abort.signal.aborted) {
      try {
        await once();
        const now = await api.get<Execution>(path, { signal: abort.signal });
        if (now.ended_at) break;
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) break;
        handlers.onLink?.(false);
      }
      await sleep(wait);
      wait = Math.min(2 * wait, 3000);
    }
    if (!abort.signal.aborted) handlers.onEnd?.();
  }
  return { stop: () => abort.abort(), done: run() };
}
