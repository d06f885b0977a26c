// SPDX-License-Identifier: Apache-2.0
// The walls of the sandbox: which are up, and which are missing.

import { bytes, empty, h, type Child } from "../dom";
import type { Isolation } from "../api";
import type { Context, Tab } from "../session";

const spaces: Record<string, string> = {
  user: "its root is nobody on the host", pid: "it sees its own processes only", mnt: "its own file system", net: "its own network", ipc: "its own shared memory",
  uts: "its own host name", cgroup: "it does not see its own limits", time: "its own clocks",
};

interface Wall { name: string; text: Child; isUp: boolean }

function limitsText(limits: Record<string, unknown>): string {
  const parts = [["memory_bytes", (value: number) => `memory ${bytes(value)}`], ["cpu_millis", (value: number) => `${value / 1000} cpu`], ["pids", (value: number) => `${value} processes`],
    ["disk_bytes", (value: number) => `disk ${bytes(value)}`]] as const;
  return parts.filter(([name]) => Number(limits[name])).map(([name, write]) => write(Number(limits[name]))).join(", ");
}

function walls(report: Isolation): Wall[] {
  const list: Wall[] = (report.namespaces ?? []).map(name => ({ name: `${name} namespace`, text: spaces[name] ?? "", isUp: true }));
  const has = (value: unknown): boolean => value !== undefined && value !== null && value !== false && value !== "none" && value !== 0 && value !== "off";
  if ("seccomp" in report) list.push({ name: "seccomp", text: has(report.seccomp) ? "dangerous system calls are refused" : "every system call is allowed", isUp: has(report.seccomp) });
  if ("no_new_privs" in report) list.push({ name: "no new privileges", text: "set-user-ID programs give no rights", isUp: !!report.no_new_privs });
  if ("landlock_abi" in report) list.push({ name: "Landlock", text: report.landlock_abi ? `version ${report.landlock_abi}: rules for files below the namespaces` : "not in force", isUp: !!report.landlock_abi });
  if (report.uids) list.push({ name: "own users", text: `${report.uids.count} user ids that nothing else has`, isUp: true });
  if (report.capabilities) list.push({ name: "capabilities", text: `bounded to ${report.capabilities.bounding ?? "?"}`, isUp: true });
  if (report.limits) list.push({ name: "limits", text: limitsText(report.limits), isUp: !!limitsText(report.limits) });
  if (report.network !== undefined) list.push({ name: "network", text: report.network === "none" ? "no way out" : `${report.network}: it can reach other machines`, isUp: report.network === "none" });
  for (const name of report.missing ?? []) list.push({ name, text: "missing on this host", isUp: false });
  return list;
}

export function isolationTab(context: Context): Tab {
  const element = h("div", { class: "isolation" });
  function fill(): void {
    const report = context.session().sandbox?.isolation;
    if (!report) {
      element.replaceChildren(empty("There is no sandbox now, so there are no walls to show.", "The next use of the session makes one."));
      return;
    }
    const list = walls(report), missing = list.filter(wall => !wall.isUp);
    element.replaceChildren(
      h("p", { class: missing.length ? "problem" : "good" }, missing.length ? `${missing.length} ${missing.length === 1 ? "wall is" : "walls are"} open or missing: ${missing.map(wall => wall.name).join(", ")}` : "All walls are up."),
      h("p", { class: "muted" }, `Backend ${report.backend}${report.boundary ? `, boundary: ${report.boundary}` : ""}. The launcher reports what is in force, not what was asked for.`),
      h("ul", { class: "walls" }, list.map(wall => h("li", { class: wall.isUp ? "up" : "down" },
        h("span", { class: "mark", "aria-hidden": "true" }, wall.isUp ? "✓" : "✕"), h("strong", null, wall.name), h("span", { class: "sr" }, wall.isUp ? " in force: " : " open or missing: "), h("span", null, wall.text)))),
      h("details", null, h("summary", null, "The report as the daemon gives it"), h("pre", null, JSON.stringify(report, null, 2))));
  }
  fill();
  return { element, onSession: fill };
}
