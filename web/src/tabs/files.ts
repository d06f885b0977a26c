// SPDX-License-Identifier: Apache-2.0
// The files of a session: a tree, what is in them, in by dropping and out by downloading; of an ended one those that were kept.

import { ApiError, explain } from "../api";
import { bytes, empty, h, replace, since, toast } from "../dom";
import { download, preview } from "../preview";
import type { Context, Tab } from "../session";

interface Entry { path: string; type: string; size: number; modified: string }

const join = (folder: string, name: string): string => folder === "." ? name : `${folder}/${name}`;

export async function filesTab(context: Context): Promise<Tab> {
  const tree = h("ul", { class: "tree" }), view = h("section", { class: "preview", "aria-label": "Preview" }, empty("Choose a file to see it.", "Drop files here to upload them."));
  const picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => void upload(picker.files!, folder) });
  const note = h("span", { class: "muted" });
  const isEnded = context.session().state === "ended", source = isEnded ? "/kept/file" : "/files";
  const place = h("div", { class: "files" }, h("div", { class: "tree-box" },
    h("div", { class: "bar-row" }, h("h2", null, isEnded ? "Kept files" : "Workspace"), note,
      isEnded ? null : [h("button", { class: "small", onclick: () => picker.click() }, "Upload"), h("button", { class: "small", onclick: () => void load() }, "Reload")]), picker, tree), view);
  let folder = "."; // where an upload goes
  const opened = new Set<string>();

  async function list(path: string): Promise<Entry[]> {
    const { entries } = await context.api.get<{ entries: Entry[] }>(`/files/list?path=${encodeURIComponent(path)}&limit=1000`);
    return entries.sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory") || a.path.localeCompare(b.path));
  }

  function fileItem(path: string, entry: Entry): HTMLElement {
    return h("li", null, h("button", { class: "entry", onclick: () => void open(path, entry) }, h("span", { class: "entry-name" }, entry.path.split("/").pop()!),
      h("span", { class: "muted" }, bytes(entry.size))));
  }

  function folderItem(path: string, entry: Entry): HTMLElement {
    const inside = h("ul", { hidden: true });
    const button = h("button", { class: "entry folder", "aria-expanded": "false", onclick: () => void toggle() }, h("span", { class: "entry-name" }, `${entry.path.split("/").pop()}/`));
    async function toggle(): Promise<void> {
      const opens = inside.hidden;
      folder = opens ? path : ".";
      inside.hidden = !opens;
      button.setAttribute("aria-expanded", String(opens));
      if (opens) { opened.add(path); await fill(inside, path); } else opened.delete(path);
    }
    const item = h("li", { "data-folder": path }, button, inside);
    if (opened.has(path)) void toggle();
    return item;
  }

  async function fill(target: HTMLElement, path: string): Promise<void> {
    try {
      const entries = await list(path);
      replace(target, entries.length ? entries.map(entry => entry.type === "directory" ? folderItem(join(path, entry.path), entry) : fileItem(join(path, entry.path), entry))
        : h("li", { class: "muted" }, path === "." ? "The workspace is empty. Drop files here." : "empty"));
    } catch (error) {
      replace(target, h("li", { class: "problem" }, explain(error)));
    }
  }

  async function loadKept(): Promise<void> {
    try {
      const { files } = await context.api.get<{ files: { path: string; size: number }[] }>("/kept");
      replace(tree, files.map(one => fileItem(one.path, { path: one.path, type: "file", size: one.size, modified: "" })));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      replace(tree, h("li", { class: "muted" }, "No files were kept. Sessions with keep_files keep theirs."));
    }
  }

  const load = (): Promise<void> => isEnded ? loadKept() : fill(tree, ".");

  async function open(path: string, entry: Entry): Promise<void> {
    replace(view, h("p", { class: "muted" }, "Loading…"));
    try {
      const content = await preview(context.api, path, entry.size, source);
      replace(view, h("div", { class: "bar-row" }, h("h2", null, path), h("span", { class: "muted" }, `${bytes(entry.size)}${entry.modified ? ` · ${since(entry.modified)} ago` : ""}`),
        h("button", { class: "small primary", onclick: () => void download(context.api, path, source).catch(error => toast(explain(error), "error")) }, "Download"),
        isEnded ? null : h("button", { class: "small danger", onclick: () => void remove(path) }, "Delete")), content);
    } catch (error) {
      replace(view, empty("This file cannot be shown.", explain(error)));
    }
  }

  async function remove(path: string): Promise<void> {
    try {
      await context.api.send("DELETE", `/files?path=${encodeURIComponent(path)}`);
      toast(`${path} is deleted`);
      replace(view, empty("Choose a file to see it."));
      await load();
    } catch (error) { toast(explain(error), "error"); }
  }

  async function upload(files: FileList | File[], target: string): Promise<void> {
    for (const file of files) {
      const path = join(target, file.name);
      note.textContent = `uploading ${path}…`;
      try {
        await context.api.send("PUT", `/files?path=${encodeURIComponent(path)}`, { bytes: file });
        toast(`${path} is uploaded (${bytes(file.size)})`);
      } catch (error) { toast(`${path}: ${explain(error)}`, "error"); }
    }
    note.textContent = "";
    await load();
  }

  if (!isEnded) {
    place.addEventListener("dragover", event => { event.preventDefault(); place.classList.add("drop"); });
    place.addEventListener("dragleave", () => place.classList.remove("drop"));
    place.addEventListener("drop", event => {
      event.preventDefault();
      place.classList.remove("drop");
      const at = (event.target as Element).closest<HTMLElement>("[data-folder]")?.dataset.folder ?? ".";
      if (event.dataTransfer?.files.length) void upload(event.dataTransfer.files, at);
    });
  }
  await load();
  return { element: place };
}
