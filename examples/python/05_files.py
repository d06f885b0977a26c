# SPDX-License-Identifier: Apache-2.0
"""Files: many at once, search, edit, a directory as an archive."""
import io
import tarfile

from sandglass import Client, FileNotFound

with Client().session() as session:
    files = session.files
    print(files.write_many({"src/a.py": "x = 1\n", "src/b.py": "y = 2\n", "README": "read me\n"}))
    print([file.path for file in files.glob("**/*.py")])
    print([(match.path, match.line) for match in files.grep("^y")])
    files.edit("src/a.py", "x = 1", "x = 10")
    print(files.read_text("src/a.py").strip())
    with tarfile.open(fileobj=io.BytesIO(files.archive("src"))) as archive:
        print(sorted(member.name for member in archive if member.isfile()))
    try:
        files.read("nothing")
    except FileNotFound as problem:
        print(problem.code)

# prints:
# 3
# ['src/a.py', 'src/b.py']
# [('src/b.py', 1)]
# x = 10
# ['a.py', 'b.py']
# file_not_found
