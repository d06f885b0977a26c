// SPDX-License-Identifier: Apache-2.0
/** A tar archive (ustar with PAX headers for long names) of files by their paths. */
export function pack(files: Record<string, string | Uint8Array>): Uint8Array {
  const blocks: Uint8Array[] = [];
  const text = new TextEncoder();
  for (const [path, content] of Object.entries(files)) {
    const data = typeof content === "string" ? text.encode(content) : content;
    const name = text.encode(path);
    if (name.length > 100) add(blocks, text.encode("PaxHeader"), "x", text.encode(paxRecord("path", path, text)));
    add(blocks, name.slice(0, 100), "0", data);
  }
  blocks.push(new Uint8Array(1024));
  const all = new Uint8Array(blocks.reduce((sum, block) => sum + block.length, 0));
  let at = 0;
  for (const block of blocks) {
    all.set(block, at);
    at += block.length;
  }
  return all;
}

function paxRecord(key: string, value: string, text: TextEncoder): string {
  const rest = ` ${key}=${value}\n`;
  let length = text.encode(rest).length;
  for (let digits = 0; digits !== String(length).length;) {
    digits = String(length).length;
    length = text.encode(rest).length + digits;
  }
  return `${length}${rest}`;
}

function add(blocks: Uint8Array[], name: Uint8Array, type: string, data: Uint8Array): void {
  const head = new Uint8Array(512);
  const put = (at: number, value: string) => head.set(new TextEncoder().encode(value), at);
  head.set(name, 0);
  put(100, "0000644\0");
  put(108, "0000000\0");
  put(116, "0000000\0");
  put(124, `${data.length.toString(8).padStart(11, "0")}\0`);
  put(136, "00000000000\0");
  put(148, "        ");
  put(156, type);
  put(257, "ustar\0" + "00");
  put(148, `${head.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `);
  blocks.push(head, data, new Uint8Array((512 - (data.length % 512)) % 512));
}
