// SPDX-License-Identifier: Apache-2.0
// Images and other displays of code, as bytes.
import { Client } from "sandglass";

const code = `
import base64, struct, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

rows = b"".join(b"\\0" + bytes([x * 16, y * 16, 128][i] for x in range(16) for i in range(3)) for y in range(16))
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
display({"image/png": base64.b64encode(png).decode(), "text/plain": "a gradient"}, raw=True)
`;

const session = await new Client().session();
try {
  const result = await session.runCode(code, { check: true });
  console.log(Buffer.from(result.images[0]!.slice(1, 4)).toString());
  console.log(result.results[0]!.formats.join(" "), result.results[0]!.text);
} finally {
  await session.close();
}

// prints:
// PNG
// image/png text/plain a gradient
