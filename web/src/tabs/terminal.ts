// SPDX-License-Identifier: Apache-2.0
// A shell in the session: xterm.js over an execution with a terminal. Its output is read by offset, so that a break loses nothing.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { ApiError, explain, sleep, type Execution } from "../api";
import { empty, h, replace, toast } from "../dom";
import { followOutput, type Follower } from "../output";
import type { Context, Tab } from "../session";
import { allowStyles } from "../styles";

const KEY = "page-shell-";
const shell = "command -v bash >/dev/null && exec bash -i; exec sh -i";

const themes = {
  dark: { background: "#161410", foreground: "#ece8df", cursor: "#e0a84a", selectionBackground: "#5a4a2a" },
  light: { background: "#fffdf8", foreground: "#26221b", cursor: "#8a5a10", selectionBackground: "#f0dcb4", white: "#6b655c", brightWhite: "#26221b", yellow: "#8a5a10", brightYellow: "#8a5a10" },
};

/** Keys and pastes, in order, one request at a time. */
class Input {
  private waiting: Uint8Array[] = [];
  private isSending = false;
  isClosed = false;
  constructor(private readonly context: Context, private readonly id: string) {}

  add(data: Uint8Array): void {
    this.waiting.push(data);
    if (!this.isSending) void this.flush();
  }

  private async flush(): Promise<void> {
    this.isSending = true;
    while (this.waiting.length && !this.isClosed) {
      const all = new Uint8Array(await new Blob(this.waiting.splice(0) as BlobPart[]).arrayBuffer());
      try {
        await this.context.api.send("POST", `/executions/${this.id}/stdin`, { bytes: all });
      } catch (error) {
        const isAway = error instanceof TypeError || (error instanceof ApiError && error.status === 503);
        if (isAway) { this.waiting.unshift(all); await sleep(500); } // the daemon is away or begins: the keys wait
        else { this.waiting = []; this.isClosed = true; }
      }
    }
    this.isSending = false;
  }
}

export async function terminalTab(context: Context): Promise<Tab> {
  if (context.session().state === "ended") return { element: empty("The session has ended: there is no shell to open.", "Its executions keep what was written.") };
  allowStyles();
  const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const terminal = new Terminal({ cursorBlink: true, fontSize: 13, fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace", scrollback: 10000, theme: isDark ? themes.dark : themes.light, screenReaderMode: false, minimumContrastRatio: 4.5 });
  const fit = new FitAddon(), screen = h("div", { class: "screen" }), status = h("span", { class: "muted", role: "status" }), again = h("button", { class: "small", onclick: () => void open(true) }, "New shell");
  const element = h("div", { class: "terminal" }, h("div", { class: "bar-row" }, status, again, h("span", { class: "muted hint" }, "The shell stays when you leave this page.")), screen);
  let execution: Execution | null = null, follower: Follower | null = null, input: Input | null = null, size = "", closed = false, resizeTimer = 0;
  terminal.loadAddon(fit);

  async function findShell(): Promise<Execution | null> {
    const { executions } = await context.api.get<{ executions: Execution[] }>("/executions?state=running&limit=50");
    return executions.find(one => one.key?.startsWith(KEY)) ?? null;
  }

  const startShell = (): Promise<Execution> => context.api.call<Execution>("POST", "/executions", { body: {
    argv: ["/bin/sh", "-c", shell], tty: { cols: terminal.cols, rows: terminal.rows }, stdin: true, background: true, key: `${KEY}${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}` } });

  function attach(one: Execution, offset: number): void {
    execution = one;
    input = new Input(context, one.id);
    follower?.stop();
    follower = followOutput(context.api, one, "stdout", offset, {
      onBytes: data => terminal.write(data),
      onLink: isThere => { status.textContent = isThere ? "connected" : "connecting again…"; },
      onEnd: () => { status.textContent = "the shell has ended"; terminal.write("\r\n\x1b[2m[the shell has ended]\x1b[0m\r\n"); input!.isClosed = true; },
    });
  }

  async function open(isNew: boolean): Promise<void> {
    status.textContent = "connecting…";
    try {
      const running = isNew ? null : await findShell();
      if (closed) return;
      terminal.reset();
      size = "";
      attach(running ?? await startShell(), running ? -1 : 0);
      resize();
      terminal.focus();
    } catch (error) {
      status.textContent = explain(error);
    }
  }

  function resize(): void {
    if (closed || !screen.clientWidth) return;
    fit.fit();
    const wanted = `${terminal.cols}x${terminal.rows}`;
    if (!execution || wanted === size) return;
    clearTimeout(resizeTimer);
    resizeTimer = window.setTimeout(() => {
      size = wanted;
      context.api.call("POST", `/executions/${execution!.id}/resize`, { body: { cols: terminal.cols, rows: terminal.rows } }).catch(() => undefined);
    }, 100);
  }

  const encoder = new TextEncoder();
  terminal.onData(text => input?.add(encoder.encode(text)));
  terminal.onBinary(text => input?.add(Uint8Array.from(text, letter => letter.charCodeAt(0))));
  // Ctrl+Shift+C copies; the browser pastes by itself into the text area of the terminal.
  terminal.attachCustomKeyEventHandler(event => {
    if (event.type === "keydown" && event.ctrlKey && event.shiftKey && event.code === "KeyC") {
      navigator.clipboard.writeText(terminal.getSelection()).catch(() => toast("The browser did not allow copying", "error"));
      event.preventDefault();
      return false;
    }
    return true;
  });
  const observer = new ResizeObserver(resize);
  setTimeout(() => {
    if (closed) return;
    terminal.open(screen);
    observer.observe(screen);
    resize();
    void open(false);
  });
  replace(screen);
  // xterm.js still measures itself shortly after it was opened: it goes a little later.
  return { element, close: () => { closed = true; observer.disconnect(); follower?.stop(); clearTimeout(resizeTimer); setTimeout(() => terminal.dispose(), 1000); } };
}
