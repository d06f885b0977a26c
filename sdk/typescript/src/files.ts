// SPDX-License-Identifier: Apache-2.0
import { NotFound } from "./errors.js";
import type { Schemas } from "./schema.js";
import type { Session } from "./session.js";
import { pack } from "./tar.js";
import type { Answer, Body } from "./transport.js";

/** A change that a watch has seen. */
export interface FileChange {
  /** "created", "modified", "written", "deleted", "moved_from", "moved_to", "attributes", or "overflow" when changes were missed. */
  type: string;
  path: string;
  isDirectory: boolean;
}

/** Changes of files as they happen: `for await (const change of watch)`. */
export class Watch implements AsyncIterable<FileChange> {
  constructor(private readonly answer: Answer) {}

  /** The changes. */
  async *[Symbol.asyncIterator](): AsyncGenerator<FileChange> {
    try {
      for await (const { name, data } of this.answer.events()) {
        if (name === "end") return;
        if (name === "watching" || name === "shutdown") continue;
        const event = JSON.parse(data) as Schemas["FileChange"];
        yield { type: name, path: event.path ?? "", isDirectory: event.is_directory ?? false };
      }
    } finally {
      this.close();
    }
  }

  /** Stops watching. */
  close(): void {
    this.answer.close();
  }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

/** The files of a session, by paths inside of its sandbox; relative ones start at the workspace. */
export class Files {
  constructor(private readonly session: Session) {}

  private get path(): string { return `${this.session.path}/files`; }

  private open(path: string): Promise<Answer> {
    return this.session.transport.open("GET", this.path, { query: { path } });
  }

  /** All of a file. */
  async read(path: string): Promise<Uint8Array> { return (await this.open(path)).bytes(); }

  /** All of a file, as text. */
  async readText(path: string): Promise<string> { return (await this.open(path)).text(); }

  /** A file of any size, piece by piece. */
  async *stream(path: string): AsyncGenerator<Uint8Array> {
    yield* (await this.open(path)).pieces();
  }

  /** Writes a file as a whole: readers see the old one or the new one. Missing directories are made. `mode` is like 0o755. */
  async write(path: string, data: Body, options: { mode?: number } = {}): Promise<Schemas["File"]> {
    return this.session.transport.call("PUT", this.path, {
      query: { path, mode: options.mode?.toString(8).padStart(4, "0") }, body: data, headers: { "Content-Type": "application/octet-stream" },
    });
  }

  /** Writes several files in one request, by their paths below the directory `path`; returns how many. */
  async writeMany(files: Record<string, string | Uint8Array>, path = "."): Promise<number> {
    return (await this.unpack(pack(files), path)).unpacked;
  }

  /** Copies a file from this host into the session; not in browsers. */
  async upload(local: string, path: string): Promise<void> {
    const { createReadStream, statSync } = await import("node:fs");
    await this.write(path, createReadStream(local) as AsyncIterable<Uint8Array>, { mode: statSync(local).mode & 0o777 });
  }

  /** Copies a file from the session to this host; the target changes only when all of it has come. Not in browsers. */
  async download(path: string, local: string): Promise<void> {
    const [fs, { pipeline }] = [await import("node:fs"), await import("node:stream/promises")];
    try {
      await pipeline(this.stream(path), fs.createWriteStream(`${local}.part`));
      fs.renameSync(`${local}.part`, local);
    } finally {
      fs.rmSync(`${local}.part`, { force: true });
    }
  }

  /** A directory as a tar archive. */
  async archive(path = "."): Promise<Uint8Array> {
    return (await this.session.transport.open("GET", `${this.session.path}/archive`, { query: { path } })).bytes();
  }

  /** Unpacks a tar archive into a directory; the answer names members that were `refused`. */
  async unpack(archive: Body, path = "."): Promise<Schemas["Unpacked"]> {
    return this.session.transport.call("PUT", `${this.session.path}/archive`, {
      query: { path }, body: archive, headers: { "Content-Type": "application/x-tar" },
    });
  }

  /** The entries of a directory, and with a larger `depth` of those below it. */
  async list(path = ".", depth = 1): Promise<Schemas["File"][]> {
    const entries: Schemas["File"][] = [];
    for (let cursor: string | null | undefined; ;) {
      const page: Schemas["FileList"] = await this.session.transport.call("GET", `${this.path}/list`, { query: { path, depth, cursor } });
      entries.push(...page.entries);
      cursor = page.next_cursor;
      if (cursor === null) return entries;
    }
  }

  /** Files whose path matches: `*`, `?` and `[a-z]` inside of a name, `**` for any directories. */
  async glob(pattern: string, options: { path?: string; limit?: number; hidden?: boolean } = {}): Promise<Schemas["File"][]> {
    return (await this.session.transport.call<Schemas["Matches"]>("GET", `${this.path}/glob`, { query: { pattern, ...options } })).entries;
  }

  /** Lines that match a POSIX extended regular expression, or with `fixed` a plain text. */
  async grep(pattern: string, options: {
    path?: string; glob?: string; fixed?: boolean; ignore_case?: boolean; context?: number; limit?: number; hidden?: boolean;
  } = {}): Promise<Schemas["GrepLine"][]> {
    return (await this.session.transport.call<Schemas["GrepResult"]>("GET", `${this.path}/grep`, {
      query: { pattern, ...options, fixed: undefined, literal: options.fixed },
    })).lines;
  }

  /** Replaces a text that occurs exactly once, or everywhere with `replaceAll`; returns how often. */
  async edit(path: string, oldText: string, newText: string, options: { replaceAll?: boolean } = {}): Promise<number> {
    const json = { path, old: oldText, new: newText, replace_all: options.replaceAll ?? false };
    return (await this.session.transport.call<Schemas["Edited"]>("POST", `${this.path}/edit`, { json })).replacements;
  }

  /** Changes below a directory from now on. */
  async watch(path = ".", options: { recursive?: boolean } = {}): Promise<Watch> {
    return new Watch(await this.session.transport.open("GET", `${this.path}/watch`, {
      query: { path, recursive: options.recursive || undefined }, headers: { Accept: "text/event-stream" }, timeout: null,
    }));
  }

  /** The type, size, owner and times of a file. */
  async stat(path: string): Promise<Schemas["File"]> {
    return this.session.transport.call("GET", `${this.path}/stat`, { query: { path } });
  }

  /** Whether there is a file or directory. */
  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (problem) {
      if (problem instanceof NotFound && problem.code !== "session_not_found") return false;
      throw problem;
    }
  }

  /** Removes a file or an empty directory; with `recursive` everything below it, too. */
  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.session.transport.call("DELETE", this.path, { query: { path, recursive: options.recursive || undefined } });
  }

  /** Makes a directory and the missing ones above it. */
  async mkdir(path: string): Promise<void> {
    await this.session.transport.call("POST", `${this.path}/mkdir`, { json: { path } });
  }

  /** Renames a file or directory; an existing target is replaced only with `replace`. */
  async move(from: string, to: string, options: { replace?: boolean } = {}): Promise<void> {
    await this.session.transport.call("POST", `${this.path}/move`, { json: { from, to, replace: options.replace ?? false } });
  }
}

/** Files that programs of a session have stored from inside; readable until its retention is over. */
export class Storage {
  constructor(private readonly session: Session) {}

  private at(name: string): string { return `${this.session.path}/storage/${encodeURIComponent(name)}`; }

  /** Name, size and time of each. */
  async list(): Promise<Schemas["StoredFile"][]> {
    return this.session.transport.entries(`${this.session.path}/storage`, "files");
  }

  /** All of a stored file. */
  async read(name: string): Promise<Uint8Array> { return (await this.session.transport.open("GET", this.at(name))).bytes(); }

  /** Removes a stored file. */
  async remove(name: string): Promise<void> { await this.session.transport.call("DELETE", this.at(name)); }

  /** A URL that gives read access to the file for `validFor` seconds, without credentials. */
  async url(name: string, validFor?: number): Promise<string> {
    return (await this.session.transport.call<Schemas["StoredUrl"]>("POST", `${this.at(name)}/url`, { json: { valid_seconds: validFor } })).url;
  }
}

/** The workspace as it was kept when the last sandbox ended (`keep_files`); readable until retention is over. */
export class Kept {
  constructor(private readonly session: Session) {}

  /** All of it; paths begin in the workspace. */
  async list(): Promise<Schemas["KeptFile"][]> {
    return (await this.session.transport.call<Schemas["KeptList"]>("GET", `${this.session.path}/kept`)).files;
  }

  /** All of a kept file. */
  async read(path: string): Promise<Uint8Array> {
    return (await this.session.transport.open("GET", `${this.session.path}/kept/file`, { query: { path } })).bytes();
  }

  /** Everything, as a tar archive. */
  async archive(): Promise<Uint8Array> {
    return (await this.session.transport.open("GET", `${this.session.path}/kept/archive`)).bytes();
  }
}
