"""Server-Sent Events."""
from __future__ import annotations

from typing import Iterator, List, Tuple

from ._transport import Answer


def read_events(answer: Answer) -> Iterator[Tuple[str, str]]:
    """(name, data) of each event, as they come."""
    for name, data, _ in read_numbered_events(answer):
        yield name, data


def read_numbered_events(answer: Answer) -> Iterator[Tuple[str, str, str]]:
    """(name, data, id) of each event, as they come."""
    name, data, number = "message", [], ""  # type: Tuple[str, List[str], str]
    for raw in answer.lines():
        line = raw.decode().rstrip("\r")
        if not line:
            if data:
                yield name, "\n".join(data), number
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            number = value
