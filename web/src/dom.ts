// SPDX-License-Identifier: Apache-2.0
// Elements, texts and times: what every screen needs.

export type Child = Node | string | number | null | undefined | false | Child[];
type Props = Record<string, unknown>;

function append(element: Element, child: Child): void {
  if (child === null || child === undefined || child === false) return;
  if (Array.isArray(child)) for (const one of child) append(element, one);
  else element.append(child instanceof Node ? child : String(child));
}

/** h("button", { class: "primary", onclick: run }, "Run") */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props?: Props | null, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "class") element.className = String(value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** Sets a text only when it differs: a row that shows the same costs nothing. */
export function setText(element: Element, text: string): void {
  if (element.firstChild?.nodeValue !== text || element.childNodes.length !== 1) element.textContent = text;
}

// --- numbers for people -------------------------------------------------------------------------

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit++; }
  return `${count < 10 && unit ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

/** 1d 3h, 2h 5m, 12m 3s, 8s: two units at most. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  const days = Math.floor(s / 86400), hours = Math.floor(s / 3600) % 24, minutes = Math.floor(s / 60) % 60;
  if (days) return hours ? `${days}d ${hours}h` : `${days}d`;
  if (hours) return minutes ? `${hours}h ${minutes}m` : `${hours}h`;
  if (minutes) return s % 60 && minutes < 10 ? `${minutes}m ${s % 60}s` : `${minutes}m`;
  return `${s}s`;
}

export function shortDuration(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : seconds < 10 ? `${seconds.toFixed(1)} s` : duration(seconds);
}

export function usd(amount: number | null | undefined): string {
  return amount === null || amount === undefined ? "–" : `$${amount.toFixed(amount && amount < 0.1 ? 4 : 2)}`;
}

export function since(time: string | null): string {
  return time ? duration((Date.now() - Date.parse(time)) / 1000) : "–";
}

export function clock(time: string | null): string {
  return time ? new Date(time).toLocaleTimeString(undefined, { hour12: false }) : "–";
}

export function dateAndTime(time: string | null): string {
  return time ? new Date(time).toLocaleString(undefined, { hour12: false }) : "–";
}

export function timeTag(time: string, text: string): HTMLTimeElement {
  return h("time", { datetime: time, title: dateAndTime(time) }, text);
}

// --- talking to the person ----------------------------------------------------------------------

const toasts = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(toasts);

export function toast(text: string, kind: "note" | "error" = "note"): void {
  const line = h("div", { class: `toast ${kind}` }, text);
  toasts.append(line);
  setTimeout(() => line.remove(), kind === "error" ? 9000 : 4500);
}

/** A dialog with a form; resolves with the value of the button that closed it, "" for none. */
export function ask(title: string, content: Child, buttons: { value: string; label: string; kind?: string }[]): Promise<string> {
  return new Promise(resolve => {
    const row = h("div", { class: "buttons" }, buttons.map(button =>
      h("button", { type: "submit", value: button.value, class: button.kind ?? "", formnovalidate: button.value === "" }, button.label)));
    const heading = `dialog-${Math.random().toString(36).slice(2)}`;
    const dialog = h("dialog", { "aria-labelledby": heading },
      h("form", { method: "dialog" }, h("h2", { id: heading }, title), h("div", { class: "dialog-body" }, content), row));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue); });
    document.body.append(dialog);
    dialog.showModal();
    (dialog.querySelector<HTMLElement>("[autofocus]") ?? row.querySelector<HTMLElement>(".primary, .danger"))?.focus();
  });
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser did not allow copying: select the text instead", "error");
  }
}

export function empty(title: string, ...hint: Child[]): HTMLElement {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, hint));
}
