"""Files of a session."""
from __future__ import annotations

import os
import shutil
from typing import IO, TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Union

from ._transport import Answer
from .errors import NotFound

if TYPE_CHECKING:
    from .session import Session


def save(pieces: Iterator[bytes], local: "os.PathLike[str] | str") -> None:
    """Writes a file that changes only when all of it has come."""
    partial = f"{os.fspath(local)}.part"
    try:
        with open(partial, "wb") as file:
            for piece in pieces:
                file.write(piece)
        shutil.move(partial, local)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


class FileInfo:
    """What is known of a file: `path`, `name`, `type` ("file", "directory", "link", …), `size` in bytes, `mode` as a
    number, `modified` as the daemon writes times; `raw` has the rest."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(document)
        self.path = str(document["path"])
        self.name = os.path.basename(self.path.rstrip("/"))
        self.type = str(document["type"])
        self.size = int(document["size"])
        self.mode = int(str(document["mode"]), 8)
        self.modified = str(document["modified"] or "")

    @property
    def is_file(self) -> bool:
        return self.type == "file"

    @property
    def is_directory(self) -> bool:
        return self.type == "directory"

    def __repr__(self) -> str:
        return f"<FileInfo {self.path} {self.type} {self.size}>"


class Files:
    """The files of a session, by paths inside of its sandbox; relative ones start at the workspace."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def read(self, path: str) -> bytes:
        """All of a file."""
        return self._open(path).read()

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def stream(self, path: str) -> Iterator[bytes]:
        """A file of any size, piece by piece."""
        return self._open(path).pieces()

    def write(self, path: str, data: Union[str, bytes, IO[bytes]], mode: Optional[int] = None) -> None:
        """Writes a file as a whole: readers see the old one or the new one. Missing directories are made.

        `data` may be an open binary file of any size. `mode` is like 0o755.
        """
        body = data.encode() if isinstance(data, str) else data
        query = [("path", path), ("mode", None if mode is None else f"{mode:04o}")]
        self._session.transport.open("PUT", self._session.path + "/files", query, body,
                                     {"Content-Type": "application/octet-stream"}).read()

    def upload(self, local: "os.PathLike[str] | str", path: str) -> None:
        """Copies a file from here into the session, with its mode."""
        with open(local, "rb") as file:
            self.write(path, file, mode=os.fstat(file.fileno()).st_mode & 0o777)

    def download(self, path: str, local: "os.PathLike[str] | str") -> None:
        """Copies a file from the session to here; the target changes only when all of it has come."""
        save(self.stream(path), local)

    def list(self, path: str = ".", depth: int = 1) -> List[FileInfo]:
        """What is in a directory, and with a larger `depth` in those below it."""
        entries: List[FileInfo] = []
        cursor: Optional[int] = None
        while True:
            page = self._call("GET", "/list", [("path", path), ("depth", depth), ("cursor", cursor)])
            entries += [FileInfo(entry) for entry in page["entries"]]
            cursor = page.get("next_cursor")
            if cursor is None:
                return entries

    def stat(self, path: str) -> FileInfo:
        return FileInfo(self._call("GET", "/stat", [("path", path)]))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except NotFound as problem:
            if problem.code == "session_not_found":
                raise
            return False
        return True

    def remove(self, path: str, recursive: bool = False) -> None:
        """Removes a file or an empty directory; with `recursive` everything below it, too."""
        query = [("path", path), ("recursive", 1 if recursive else None)]
        self._session.transport.call("DELETE", self._session.path + "/files", query)

    def mkdir(self, path: str) -> None:
        """Makes a directory and the missing ones above it."""
        self._call("POST", "/mkdir", body={"path": path})

    def move(self, source: str, target: str, replace: bool = False) -> None:
        """Renames a file or directory; one that is in its place goes only with `replace`."""
        self._call("POST", "/move", body={"from": source, "to": target, "replace": replace})

    def _open(self, path: str) -> Answer:
        return self._session.transport.open("GET", self._session.path + "/files", [("path", path)])

    def _call(self, method: str, route: str, query: Any = (), body: Any = None) -> Dict[str, Any]:
        document = self._session.transport.call(method, self._session.path + "/files" + route, query, body)
        return document if isinstance(document, dict) else {}
