// SPDX-License-Identifier: Apache-2.0
// What listens inside, and the way to it.

import { ApiError, explain, url } from "../api";
import { copy, empty, h, replace, toast } from "../dom";
import type { Context, Tab } from "../session";

interface Port { port: number; path: string }

export async function portsTab(context: Context): Promise<Tab> {
  const element = h("div", { class: "ports" });

  async function signed(port: number): Promise<string | null> {
    try {
      const answer = await context.api.call<{ url: string; path: string }>("POST", `/ports/${port}/url`, { body: { valid_seconds: 3600 } });
      return answer.url.startsWith("http") ? answer.url : url(answer.path.replace(/^\//, "")).href;
    } catch (error) {
      toast(explain(error), "error");
      return null;
    }
  }

  // A window that is opened later would be blocked; one without an opener cannot reach this page.
  async function open(port: number): Promise<void> {
    const address = await signed(port);
    if (address) h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }).click();
  }

  async function load(): Promise<void> {
    if (context.session().state === "ended") { replace(element, empty("The session has ended: nothing listens any more.")); return; }
    try {
      const { ports } = await context.api.get<{ ports: Port[] }>("/ports");
      if (!ports.length) {
        replace(element, empty("No program in the sandbox listens on a port.", "Start one, in the terminal say: ", h("code", null, "python3 -m http.server 8000")),
          h("button", { onclick: () => void load() }, "Look again"));
        return;
      }
      replace(element, h("ul", { class: "port-list" }, ports.map(({ port }) => h("li", null, h("strong", null, port),
        h("button", { class: "primary", onclick: () => void open(port) }, "Open"), h("button", { onclick: () => void signed(port).then(address => { if (address) return copy(address); }) }, "Copy a URL for an hour")))),
        h("p", { class: "muted" }, "Opened pages are kept apart from this one: they cannot use your login. "), h("button", { onclick: () => void load() }, "Look again"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      replace(element, error.code === "route_not_found" ? empty("This daemon does not offer ports.") : empty(error.message, error.hint));
    }
  }
  await load();
  const timer = setInterval(() => { if (!document.hidden) void load().catch(() => undefined); }, 10000);
  return { element, close: () => clearInterval(timer) };
}
