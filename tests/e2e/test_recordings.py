# SPDX-License-Identifier: Apache-2.0
"""The recordings of the README show what the program does today."""
import re
import sys

import pytest

from conftest import ROOT, SANDGLASS

sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import recording  # noqa: E402


@pytest.mark.parametrize("name", recording.RECORDINGS)
def test_a_recording_has_the_lines_that_appear_now(name):
    shown = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text()
    assert recording.lines_of(recording.record(SANDGLASS, name)) == recording.lines_of(shown), "run scripts/recordings"


@pytest.mark.parametrize("name", recording.RECORDINGS)
def test_a_recording_is_small_and_asks_nobody_for_anything(name):
    picture = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text()
    assert len(picture.encode()) < 60_000
    assert not re.search(r"<script|<image|href|url\(|@import", picture)
    assert [one for one in re.findall(r"https?://\S+?(?=[\"'])", picture)] == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme:dark" in picture and "prefers-reduced-motion" in picture
