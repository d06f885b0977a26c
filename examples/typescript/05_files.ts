// SPDX-License-Identifier: Apache-2.0
// Files: many at once, search, edit, a directory as an archive.
import { Client, FileNotFound } from "sandglass";

const session = await new Client().session();
try {
  const { files } = session;
  console.log(await files.writeMany({ "src/a.py": "x = 1\n", "src/b.py": "y = 2\n", README: "read me\n" }));
  console.log((await files.glob("**/*.py")).map((file) => file.path).join(" "));
  console.log((await files.grep("^y")).map((match) => `${match.path}:${match.line}`).join(" "));
  await files.edit("src/a.py", "x = 1", "x = 10");
  console.log((await files.readText("src/a.py")).trim());
  console.log((await files.archive("src")).length % 512);
  await files.read("nothing").catch((problem: unknown) => console.log(problem instanceof FileNotFound && problem.code));
} finally {
  await session.close();
}

// prints:
// 3
// src/a.py src/b.py
// src/b.py:1
// x = 10
// 0
// file_not_found
