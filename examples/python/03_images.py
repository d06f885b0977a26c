# SPDX-License-Identifier: Apache-2.0
"""Images and other displays of code, as bytes."""
from sandglass import Client

CODE = """
import base64, struct, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

rows = b"".join(b"\\0" + bytes([x * 16, y * 16, 128][i] for x in range(16) for i in range(3)) for y in range(16))
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
display({"image/png": base64.b64encode(png).decode(), "text/plain": "a gradient"}, raw=True)
"""

with Client().session() as session:
    result = session.run_code(CODE, check=True)
    [image] = result.images
    print(image[:8])
    print(result.results[0].formats, result.results[0].text)

# prints:
# b'\x89PNG\r\n\x1a\n'
# ['image/png', 'text/plain'] a gradient
