// SPDX-License-Identifier: Apache-2.0
// The page: who is there, which screen, and the keys that work everywhere.

import { explain, me, onLoginLost, sleep } from "./api";
import { ask, h, replace, toast } from "./dom";
import { home, type Screen } from "./home";
import { Hourglass } from "./hourglass";
import { loginScreen, logout, useToken, whoami } from "./login";
import { sessionScreen } from "./session";
import { Store } from "./store";

const page = document.getElementById("page")!;
let store: Store | null = null, screen: Screen | null = null, isLoggingIn = false;

// --- around the screens ---------------------------------------------------------------------------

const banner = h("div", { class: "banner", role: "status", hidden: true });
const place = h("div", { class: "place" });

function topBar(): HTMLElement {
  const glass = new Hourglass(26);
  glass.set(0.62, null);
  return h("header", { class: "top" }, h("a", { class: "brand", href: "#/" }, glass.element, h("span", null, "Sandglass")),
    h("span", { class: "who" }, me.principal || me.owner || ""),
    h("button", { class: "plain", onclick: () => void showKeys(), "aria-label": "Keys" }, "?"),
    h("button", { class: "plain", onclick: toggleTheme, "aria-label": "Light or dark" }, "◐"),
    h("button", { class: "plain", onclick: () => void logout() }, "Log out"));
}

function toggleTheme(): void {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it is only forgotten */ }
}

async function showKeys(): Promise<void> {
  const rows = [["/", "filter the sessions"], ["↑ ↓ or j k", "select a session"], ["Enter", "open it"], ["s", "shell"], ["l", "logs: its executions"],
    ["w", "why it ends, and when"], ["x", "end it, after a question"], ["n", "new session"], ["[ ]", "the tab before, the next tab"], ["Esc", "back to all sessions"]];
  await ask("Keys", h("dl", { class: "facts" }, rows.map(([key, text]) => [h("dt", null, h("kbd", null, key!)), h("dd", null, text!)])), [{ value: "", label: "Close", kind: "primary" }]);
}

function showLink(): void {
  if (!store) return;
  const isLost = store.link === "lost";
  if (banner.hidden && isLost) {
    banner.hidden = false;
    replace(banner, "The daemon cannot be reached. What you see may be old; trying again…");
  } else if (!banner.hidden && store.link === "live") {
    banner.hidden = true;
    toast("Connected again: the page shows what has happened meanwhile");
  }
}

// --- screens --------------------------------------------------------------------------------------

function route(): void {
  if (!store || isLoggingIn) return;
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const [, kind, id, tab] = path!.split("/");
  if (screen && kind === "s" && screen.element.dataset.session === id && screen.key && (screen as SessionLike).showTab) {
    (screen as SessionLike).showTab!(tab ?? "timeline");
    return;
  }
  screen?.close();
  screen = kind === "s" && id ? sessionScreen(store, decodeURIComponent(id), tab ?? "timeline") : home(store, new URLSearchParams(query ?? ""));
  replace(place, screen.element);
  window.scrollTo(0, 0);
}

interface SessionLike extends Screen { showTab?(tab: string): void }

function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (target.closest("input, textarea, select, [contenteditable], .xterm") || (event.key === "Enter" && target.closest("a, button, summary"))) return;
  if (event.key === "?") { void showKeys(); return; }
  if (screen?.key?.(event)) event.preventDefault();
}

// --- beginning ------------------------------------------------------------------------------------

async function start(problem: string | null): Promise<void> {
  isLoggingIn = true;
  store?.stop();
  screen?.close();
  screen = null;
  for (;;) {
    try {
      if (await whoami()) break;
      const login = loginScreen(problem);
      problem = null;
      replace(page, login.element);
      login.element.querySelector("input")?.focus();
      await login.done;
    } catch (error) {
      replace(page, h("p", { class: "boot" }, `${explain(error)}; trying again…`));
      await sleep(1000);
    }
  }
  isLoggingIn = false;
  replace(page, topBar(), banner, place);
  store = new Store();
  store.on("link", showLink);
  store.start();
  route();
}

try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* without storage the system decides */ }
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) void useToken().then(start);
  else route();
});
addEventListener("keydown", onKey);
onLoginLost(() => { if (!isLoggingIn) void start("This browser is not logged in any more."); });
void useToken().then(start);
