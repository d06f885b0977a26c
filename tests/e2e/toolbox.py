# SPDX-License-Identifier: Apache-2.0
"""Calls of tools, for the tests of them."""


def call(daemon, session, name, client=None, **arguments):
    query = f"?client={client}" if client else ""
    return daemon.api("POST", f"/sessions/{session}/tools/{name}{query}", arguments, expect=200).json


def text_of(result):
    return "\n".join(content["text"] for content in result["content"] if content["type"] == "text")


def ok(daemon, session, name, **arguments):
    """The text of a call that has to succeed."""
    result = call(daemon, session, name, **arguments)
    assert not result["is_error"], result
    return text_of(result)


def fails(daemon, session, name, **arguments):
    """The text of a call that has to fail."""
    result = call(daemon, session, name, **arguments)
    assert result["is_error"], result
    return text_of(result)
