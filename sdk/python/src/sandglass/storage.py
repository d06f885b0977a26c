# Written by scripts/sdk from aio/storage.py: do not edit.
# SPDX-License-Identifier: Apache-2.0
"""Files of a session that outlive its sandbox: those that programs have stored, and the workspace that was kept."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Optional
from urllib.parse import quote

from ._transport import Answer
from .files import save

if TYPE_CHECKING:
    from . import types
    from .session import Session


class Storage:
    """Files that programs of a session have stored from inside; readable until its retention is over."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def list(self) -> "List[types.StoredFile]":
        """`name`, `size_bytes` and `modified` of each."""
        return self._session.transport.entries(self._session.path + "/storage", "files")

    def read(self, name: str) -> bytes:
        """All of a stored file."""
        return (self._open(name)).read()

    def download(self, name: str, local: "os.PathLike[str] | str") -> None:
        """Copies a stored file to here."""
        save((self._open(name)).pieces(), local)

    def remove(self, name: str) -> None:
        """Removes a stored file."""
        self._session.transport.call("DELETE", self._path(name))

    def url(self, name: str, valid_for: Optional[float] = None) -> str:
        """A URL that gives read access to the file for `valid_for` seconds, without credentials."""
        body = {} if valid_for is None else {"valid_seconds": valid_for}
        return str((self._session.transport.call("POST", self._path(name) + "/url", body=body))["url"])

    def _path(self, name: str) -> str:
        return f"{self._session.path}/storage/{quote(name, safe='')}"

    def _open(self, name: str) -> Answer:
        return self._session.transport.open("GET", self._path(name))


class Kept:
    """The workspace as it was kept when the last sandbox ended (`keep_files`); readable until retention is over."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def list(self) -> "List[types.KeptFile]":
        """`path`, `type`, `size` and `modified` of all of it; paths begin in the workspace."""
        page: "types.KeptList" = self._session.transport.call("GET", self._session.path + "/kept")
        return page["files"]

    def read(self, path: str) -> bytes:
        """All of a kept file."""
        return (self._open(path)).read()

    def download(self, path: str, local: "os.PathLike[str] | str") -> None:
        """Copies a kept file to here."""
        save((self._open(path)).pieces(), local)

    def archive(self, local: "os.PathLike[str] | str") -> None:
        """Everything, as a tar file."""
        save((self._session.transport.open("GET", self._session.path + "/kept/archive")).pieces(), local)

    def _open(self, path: str) -> Answer:
        return self._session.transport.open("GET", self._session.path + "/kept/file", [("path", path)])
