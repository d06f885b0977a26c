# SPDX-License-Identifier: Apache-2.0
"""Files of a session."""
from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
from typing import IO, TYPE_CHECKING, Any, AsyncIterator, Dict, List, Mapping, Optional, Union

from ..errors import NotFound
from ..models import FileChange, FileInfo, GrepMatch
from ._transport import FOREVER, AsyncAnswer

if TYPE_CHECKING:
    from .. import types
    from .session import AsyncSession


async def save(pieces: AsyncIterator[bytes], local: "os.PathLike[str] | str") -> None:
    """Writes a file that changes only when all of it has come."""
    partial = f"{os.fspath(local)}.part"
    try:
        with open(partial, "wb") as file:
            async for piece in pieces:
                file.write(piece)
        shutil.move(partial, local)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _pack(files: "Mapping[str, Union[str, bytes]]") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, data in files.items():
            body = data.encode() if isinstance(data, str) else data
            member = tarfile.TarInfo(path)
            member.size = len(body)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


class AsyncWatch:
    """Changes of files as they happen: an iterator of `FileChange`. `close()` ends it, as does the end of its `with`."""

    def __init__(self, answer: AsyncAnswer) -> None:
        self._answer = answer
        self._changes = self._read()

    def __aiter__(self) -> "AsyncWatch":
        return self

    async def __anext__(self) -> FileChange:
        return await self._changes.__anext__()

    async def _read(self) -> AsyncIterator[FileChange]:
        async for name, data, _ in self._answer.events():
            if name == "end":
                return
            if name not in ("watching", "shutdown"):
                document = json.loads(data)
                yield FileChange(name, str(document.get("path") or ""), bool(document.get("is_directory")))

    async def close(self) -> None:
        """Stops watching."""
        self._answer.close()

    async def __aenter__(self) -> "AsyncWatch":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncFiles:
    """The files of a session, by paths inside of its sandbox; relative ones start at the workspace."""

    def __init__(self, session: "AsyncSession") -> None:
        self._session = session

    async def read(self, path: str) -> bytes:
        """All of a file."""
        return await (await self._open(path)).read()

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """All of a file, as text."""
        return (await self.read(path)).decode(encoding)

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """A file of any size, piece by piece."""
        answer = await self._open(path)
        async for piece in answer.pieces():
            yield piece

    async def write(self, path: str, data: Union[str, bytes, IO[bytes]], mode: Optional[int] = None) -> FileInfo:
        """Writes a file as a whole: readers see the old one or the new one. Missing directories are made.

        `data` may be an open binary file of any size. `mode` is like 0o755.
        """
        body = data.encode() if isinstance(data, str) else data
        query = [("path", path), ("mode", None if mode is None else f"{mode:04o}")]
        answer = await self._session.transport.open("PUT", self._session.path + "/files", query, body,
                                                    {"Content-Type": "application/octet-stream"})
        return FileInfo(json.loads(await answer.read()))

    async def write_many(self, files: "Mapping[str, Union[str, bytes]]", path: str = ".") -> int:
        """Writes several files in one request, by their paths below the directory `path`; returns how many."""
        return (await self.unpack(_pack(files), path))["unpacked"]

    async def upload(self, local: "os.PathLike[str] | str", path: str) -> None:
        """Copies a file from here into the session, with its mode; a directory with all that is in it."""
        if os.path.isdir(local):
            with tempfile.TemporaryFile() as packed:
                with tarfile.open(fileobj=packed, mode="w") as archive:
                    archive.add(local, arcname=".")
                packed.seek(0)
                await self.mkdir(path)
                await self.unpack(packed, path)
            return
        with open(local, "rb") as file:
            await self.write(path, file, mode=os.fstat(file.fileno()).st_mode & 0o777)

    async def download(self, path: str, local: "os.PathLike[str] | str") -> None:
        """Copies a file from the session to here; the target changes only when all of it has come."""
        await save((await self._open(path)).pieces(), local)

    async def archive(self, path: str = ".") -> bytes:
        """A directory as a tar archive."""
        answer = await self._session.transport.open("GET", self._session.path + "/archive", [("path", path)])
        return await answer.read()

    async def download_archive(self, local: "os.PathLike[str] | str", path: str = ".") -> None:
        """A directory of any size, as a tar file here."""
        answer = await self._session.transport.open("GET", self._session.path + "/archive", [("path", path)])
        await save(answer.pieces(), local)

    async def unpack(self, archive: Union[bytes, IO[bytes]], path: str = ".") -> "types.Unpacked":
        """Unpacks a tar archive into a directory; the answer names members that were `refused`."""
        answer = await self._session.transport.open("PUT", self._session.path + "/archive", [("path", path)], archive,
                                                    {"Content-Type": "application/x-tar"})
        unpacked: "types.Unpacked" = json.loads(await answer.read())
        return unpacked

    async def list(self, path: str = ".", depth: int = 1) -> "List[FileInfo]":
        """The entries of a directory, and with a larger `depth` of those below it."""
        entries: "List[FileInfo]" = []
        cursor: Optional[str] = None
        while True:
            page = await self._call("GET", "/list", [("path", path), ("depth", depth), ("cursor", cursor)])
            entries += [FileInfo(entry) for entry in page["entries"]]
            cursor = page.get("next_cursor")
            if cursor is None:
                return entries

    async def glob(self, pattern: str, path: str = ".", limit: Optional[int] = None, hidden: bool = False) -> "List[FileInfo]":
        """Files whose path matches: `*`, `?` and `[a-z]` inside of a name, `**` for any directories."""
        page = await self._call("GET", "/glob", [("pattern", pattern), ("path", path), ("limit", limit),
                                                 ("hidden", 1 if hidden else None)])
        return [FileInfo(entry) for entry in page["entries"]]

    async def grep(self, pattern: str, path: str = ".", *, glob: Optional[str] = None, fixed: bool = False,
                   ignore_case: bool = False, context: int = 0, limit: Optional[int] = None,
                   hidden: bool = False) -> "List[GrepMatch]":
        """Lines that match a POSIX extended regular expression, or with `fixed` a plain text."""
        page = await self._call("GET", "/grep", [
            ("pattern", pattern), ("path", path), ("glob", glob), ("literal", 1 if fixed else None),
            ("ignore_case", 1 if ignore_case else None), ("context", context or None), ("limit", limit),
            ("hidden", 1 if hidden else None)])
        return [GrepMatch(line["path"], line["line"], line["text"], line["match"]) for line in page["lines"]]

    async def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> int:
        """Replaces a text that occurs exactly once, or everywhere with `replace_all`; returns how often.

        `Conflict` with the code "match_count" when it occurs another number of times: nothing has changed then.
        """
        edited = await self._call("POST", "/edit",
                                  body={"path": path, "old": old, "new": new, "replace_all": replace_all})
        return int(edited["replacements"])

    async def watch(self, path: str = ".", recursive: bool = False) -> AsyncWatch:
        """Changes below a directory from now on."""
        query = [("path", path), ("recursive", 1 if recursive else None)]
        answer = await self._session.transport.open("GET", self._session.path + "/files/watch", query,
                                                    headers={"Accept": "text/event-stream"}, timeout=FOREVER)
        return AsyncWatch(answer)

    async def stat(self, path: str) -> FileInfo:
        """The type, size, owner and times of a file."""
        return FileInfo(await self._call("GET", "/stat", [("path", path)]))

    async def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        try:
            await self.stat(path)
        except NotFound as problem:
            if problem.code == "session_not_found":
                raise
            return False
        return True

    async def remove(self, path: str, recursive: bool = False) -> None:
        """Removes a file or an empty directory; with `recursive` everything below it, too."""
        query = [("path", path), ("recursive", 1 if recursive else None)]
        await self._session.transport.call("DELETE", self._session.path + "/files", query)

    async def mkdir(self, path: str) -> None:
        """Makes a directory and the missing ones above it."""
        await self._call("POST", "/mkdir", body={"path": path})

    async def move(self, source: str, target: str, replace: bool = False) -> None:
        """Renames a file or directory; an existing target is replaced only with `replace`."""
        await self._call("POST", "/move", body={"from": source, "to": target, "replace": replace})

    async def _open(self, path: str) -> AsyncAnswer:
        return await self._session.transport.open("GET", self._session.path + "/files", [("path", path)])

    async def _call(self, method: str, route: str, query: Any = (), body: Any = None) -> Dict[str, Any]:
        document = await self._session.transport.call(method, self._session.path + "/files" + route, query, body)
        return document if isinstance(document, dict) else {}
