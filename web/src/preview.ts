// SPDX-License-Identifier: Apache-2.0
// Files of a session on the screen: images as images, texts as texts, the rest as a download.

import { needsOwnerHeader, url, type SessionApi } from "./api";
import { bytes, h } from "./dom";

const images: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml", bmp: "image/bmp", avif: "image/avif" };
const IMAGE_MAXIMUM = 20 * 1024 * 1024, TEXT_MAXIMUM = 256 * 1024;

export const imageType = (name: string): string | null => images[name.split(".").pop()!.toLowerCase()] ?? null;

const blobs = new Map<HTMLImageElement, string>();
// The bytes of images that have left the document are given back.
setInterval(() => {
  for (const [image, address] of blobs) if (!image.isConnected) { URL.revokeObjectURL(address); blobs.delete(image); }
}, 30000);

export function imageOf(data: BlobPart, type: string, alt: string): HTMLImageElement {
  const address = URL.createObjectURL(new Blob([data], { type }));
  const image = h("img", { src: address, alt, class: "inline-image" });
  setTimeout(() => blobs.set(image, address), 1000);
  return image;
}

export function base64Image(data: string, type: string, alt: string): HTMLImageElement {
  return imageOf(Uint8Array.from(atob(data.replace(/\s/g, "")), letter => letter.charCodeAt(0)), type, alt);
}

/** An image of the workspace, or null when it cannot be shown. */
export async function fetchImage(api: SessionApi, path: string, source = "/files"): Promise<HTMLImageElement | null> {
  try {
    const answer = await api.send("GET", `${source}?path=${encodeURIComponent(path)}`);
    if (Number(answer.headers.get("Content-Length") ?? 0) > IMAGE_MAXIMUM) { await answer.body?.cancel(); return null; }
    return imageOf(await answer.arrayBuffer(), imageType(path)!, path);
  } catch {
    return null;
  }
}

/** What a file looks like. */
export async function preview(api: SessionApi, path: string, size: number, source: string): Promise<HTMLElement> {
  if (imageType(path) && size <= IMAGE_MAXIMUM) {
    const image = await fetchImage(api, path, source);
    if (image) return image;
  }
  const answer = await api.send("GET", `${source}?path=${encodeURIComponent(path)}`, size > TEXT_MAXIMUM && source === "/files" ? { headers: { Range: `bytes=0-${TEXT_MAXIMUM - 1}` } } : {});
  const data = new Uint8Array(await answer.arrayBuffer()).subarray(0, TEXT_MAXIMUM);
  if (data.includes(0)) return h("p", { class: "muted" }, `${bytes(size)} that are not text: download it to look at it.`);
  return h("div", null, size > TEXT_MAXIMUM ? h("p", { class: "muted" }, `The first ${bytes(TEXT_MAXIMUM)} of ${bytes(size)}:`) : null,
    h("pre", { class: "code", tabindex: "0", "aria-label": path }, new TextDecoder().decode(data) || "(empty)"));
}

/** By a link, so that a file of any size goes to the disk; where a header is needed, through memory. */
export async function download(api: SessionApi, path: string, source: string): Promise<void> {
  const name = path.split("/").pop()!, target = `${source}?path=${encodeURIComponent(path)}`;
  if (!needsOwnerHeader(api.owner)) { h("a", { href: url(api.path(target)).href, download: name }).click(); return; }
  const address = URL.createObjectURL(await (await api.send("GET", target)).blob());
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
