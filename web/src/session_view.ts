// SPDX-License-Identifier: Apache-2.0
// What a session looks like in words: its name, its clock, what is wrong with it.

import { duration } from "./dom";
import type { Execution, Session } from "./api";

/** A session as it was fetched, with its deadline by the clock of this browser. */
export interface Row {
  session: Session;
  deadline: number | null; // ms
  total: number | null; // of the clock that ends it, in seconds
  search: string;
  cpu: number | null; // share of its limit
  measured: { at: number; cpu: number } | null;
  runs: string | null; // null: not asked for yet
  selected?: boolean;
}

export const shortId = (id: string): string => id.replace(/^[a-z]+_/, "").slice(0, 8);
export const nameOf = (session: Session): string => session.key || session.labels.name || shortId(session.id);

function totalOf(session: Session): number | null {
  switch (session.time_remaining_clock) {
    case "idle": return session.idle_timeout_seconds;
    case "lifetime": return session.max_lifetime_seconds;
    case "lease": return session.lease_seconds;
    default: return null;
  }
}

export function searchText(session: Session): string {
  return [session.id, session.key ?? "", `owner:${session.owner}`, `state:${session.state}`, `template:${session.template}`, `flavor:${session.flavor}`,
    `backend:${session.backend}`, session.end_reason ?? "", ...Object.entries(session.labels).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
}

export function makeRow(session: Session, before?: Row): Row {
  const row: Row = { session, deadline: session.time_remaining_seconds === null ? null : Date.now() + session.time_remaining_seconds * 1000, total: totalOf(session),
    search: searchText(session), cpu: before?.cpu ?? null, measured: before?.measured ?? null, runs: session.executions.running ? before?.runs ?? null : "" };
  if (row.total !== null && session.time_remaining_seconds !== null) row.total = Math.max(row.total, session.time_remaining_seconds);
  noteCpu(row);
  return row;
}

/** Two measurements make a share. */
function noteCpu(row: Row): void {
  const usage = row.session.usage;
  if (!usage) { row.cpu = null; row.measured = null; return; }
  const at = Date.parse(usage.measured_at);
  if (row.measured && at > row.measured.at + 500) {
    const used = usage.cpu_seconds - row.measured.cpu;
    row.cpu = used < 0 ? null : used / ((at - row.measured.at) / 1000) / (row.session.limits.cpus || 1);
  }
  if (!row.measured || at > row.measured.at + 500) row.measured = { at, cpu: usage.cpu_seconds };
}

export const remaining = (row: Row): number | null => row.deadline === null ? null : Math.max(0, (row.deadline - Date.now()) / 1000);

export const share = (row: Row): number | null => {
  const left = remaining(row);
  return left === null || !row.total ? null : left / row.total;
};

/** "idle in 12m" */
export function clockText(row: Row): string {
  const left = remaining(row);
  if (row.session.state === "ending") return "ending";
  if (left === null) return row.session.state === "paused" ? "paused: no clock" : "no clock";
  return `${row.session.time_remaining_clock ?? "ends"} in ${duration(left)}`;
}

export function lastError(session: Session): string | null {
  return session.sandbox?.error?.message ?? null;
}

/** What a program was started as, in one line. */
export function commandOf(execution: Execution): string {
  const request = execution.request ?? {};
  const text = request.code !== undefined ? `${request.language}: ${request.code}` : request.command ?? request.argv?.join(" ") ??
    (request.context ? `${request.language} context` : "program");
  const line = text.trim().split("\n").find(part => part.trim()) ?? "";
  return text.trim().includes("\n") ? `${line} …` : line;
}

export function endOf(execution: Execution): string {
  if (execution.state !== "exited") return execution.reason ? `${execution.state}: ${execution.reason}` : execution.state;
  return execution.signal ? `signal ${execution.signal}` : execution.exit_code === 0 ? "exit 0" : `exit ${execution.exit_code}`;
}

const reasons: Record<string, string> = {
  idle: "nobody used it for its idle timeout", lease: "its lease ran out and nobody extended it", lifetime: "it reached its maximum lifetime",
  deleted: "a caller ended it", evicted: "its place was needed for another one", shutdown: "the daemon stopped", budget: "its budget was used up",
  replaced: "another sandbox took its place", "node lost": "the machine it ran on was lost",
};

/** Why it ended, for people. */
export function reasonText(reason: string | null): string {
  if (!reason) return "unknown";
  const known = reasons[reason];
  if (known) return `${reason}: ${known}`;
  if (reason.includes("oom")) return `${reason}: it used more memory than its limit`;
  return reason;
}

/** What would keep it from ending. */
export function whyText(row: Row): { ends: string; extended: string; others: string[] } {
  const session = row.session, left = remaining(row), others: string[] = [];
  const texts: Record<string, string> = {
    idle: "when nobody uses it any more", lease: "when its lease runs out", lifetime: "when it reaches its maximum lifetime",
  };
  const ways: Record<string, string> = {
    idle: "any use: a command, a file, or Extend", lease: "Extend (keepalive), which sets a longer lease",
    lifetime: "nothing: the maximum lifetime was set when it was created",
  };
  for (const [name, seconds] of [["lease", session.lease_remaining_seconds], ["idle", session.idle_remaining_seconds], ["lifetime", session.lifetime_remaining_seconds]] as const)
    if (name !== session.time_remaining_clock) others.push(seconds === null ? `${name}: off` : `${name}: in ${duration(seconds)}`);
  const name = session.time_remaining_clock ?? "";
  if (session.state === "ended") return { ends: `It has ended. ${reasonText(session.end_reason)}.`, extended: "nothing", others: [] };
  if (left === null) return { ends: "No clock ends it while it is like this.", extended: "not needed", others };
  return { ends: `It ends in ${duration(left)}, ${texts[name] ?? name}.`, extended: ways[name] ?? "Extend", others };
}
