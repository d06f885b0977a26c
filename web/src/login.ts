// SPDX-License-Identifier: Apache-2.0
// Logging in: a one-time token from the address, or an API key that is exchanged for a cookie.

import { ApiError, explain, get, send, setMe, type Whoami } from "./api";
import { h } from "./dom";

/** "#token=…" of `sandglass dashboard`; it is taken out of the address at once. */
export async function useToken(): Promise<string | null> {
  const match = /^#token=([a-z0-9_]+)$/.exec(location.hash);
  if (!match) return null;
  history.replaceState(null, "", "#/");
  try {
    await send("POST", "ui/exchange", { body: { token: match[1] }, quiet: true });
    return null;
  } catch (error) {
    return explain(error);
  }
}

/** Null when a login is needed. */
export async function whoami(): Promise<Whoami | null> {
  try {
    const who = await get<Whoami>("api/v1/whoami", { quiet: true });
    setMe(who);
    return who;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return null;
    throw error;
  }
}

export async function logout(): Promise<void> {
  await send("POST", "ui/logout", { quiet: true }).catch(() => undefined);
  location.reload();
}

/** Resolves when somebody has logged in. */
export function loginScreen(problem: string | null): { element: HTMLElement; done: Promise<void> } {
  const message = h("p", { class: "problem", role: "alert" }, problem ?? "");
  const input = h("input", { type: "password", name: "key", id: "key", autocomplete: "current-password", required: true, autofocus: true });
  let finish: () => void;
  const done = new Promise<void>(resolve => { finish = resolve; });
  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    message.textContent = "";
    try {
      await send("POST", "ui/login", { headers: { Authorization: `Bearer ${input.value.trim()}` }, quiet: true });
      input.value = "";
      finish();
    } catch (error) {
      message.textContent = error instanceof TypeError ? "This is no key: it has characters that cannot be sent, or the daemon is away." : explain(error);
    }
  }
  const element = h("main", { class: "login" }, h("h1", null, "Sandglass"),
    h("form", { onsubmit: submit }, h("label", { for: "key" }, "API key or token"), input, message, h("button", { class: "primary", type: "submit" }, "Log in")),
    h("div", { class: "hint" }, h("p", null, "On the machine of the daemon this logs you in without a key:"), h("pre", null, "sandglass dashboard"),
      h("p", null, "The key is exchanged for a cookie of this browser and not kept.")));
  return { element, done };
}
