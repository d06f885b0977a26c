# SPDX-License-Identifier: Apache-2.0
"""scripts/template-data-science: a tree of Debian with wheels of the package index, and what code finds in it."""
import os
import shutil
import subprocess
import sys
import urllib.request

import pytest

import debian
from conftest import ROOT, SANDGLASS

SCRIPT = ROOT / "scripts" / "template-data-science"


def missing():
    """Why the template cannot be made here, or None."""
    if reason := debian.missing():
        return reason
    try:
        urllib.request.urlopen(f"{debian.mirror()}/dists/{debian.SUITE}/Release", timeout=20).close()
    except OSError as error:
        return f"the mirror of Debian cannot be reached: {error}"
    asked = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "numpy"], capture_output=True, text=True, timeout=60)
    return None if asked.returncode == 0 else "the package index of pip cannot be reached"


def run(*arguments, **options):
    return subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=900, **options)


def test_wrong_calls_say_what_is_wrong(tmp_path):
    assert "numpy" in run("--help").stdout
    assert (wrong := run("--nme", "x")).returncode == 1 and "unknown option --nme" in wrong.stderr
    assert (wrong := run("--name")).returncode == 1 and "--name needs a value" in wrong.stderr
    alone = tmp_path / "bin"
    alone.mkdir()
    for name in ("bash", "env", "id"):
        (alone / name).symlink_to(shutil.which(name))
    needs = "debootstrap is missing" if os.geteuid() == 0 else "root is needed"
    assert (wrong := run(env={"PATH": str(alone)})).returncode == 1 and needs in wrong.stderr


@pytest.mark.release
def test_numpy_pandas_and_plots_work_in_its_sandboxes(make_daemon, tmp_path):
    if reason := missing():
        pytest.skip(reason)
    daemon = make_daemon(backend="native")
    done = run("--state", daemon.state, "--apt", "", "--packages", "numpy pandas matplotlib",
               env={**os.environ, "SANDGLASS": str(SANDGLASS), "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [] and "data-science" in daemon.cli("template", "ls", "--state", daemon.state).stdout
    session = daemon.session(template="data-science")
    context = daemon.api("POST", f"/sessions/{session}/contexts", {}, expect=201).json["id"]
    code = ("%matplotlib inline\nimport numpy as np, pandas as pd, matplotlib.pyplot as plt\n"
            "plt.plot(np.arange(5))\npd.DataFrame({'a': [1, 2]})")
    result = daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": code}, expect=200, timeout=120).json
    assert (result["state"], result["stderr"]) == ("ok", ""), result["error"]
    plot, table = result["results"]
    assert plot["data"]["image/png"].startswith("iVBOR") and "<table" in table["data"]["text/html"]
    done = daemon.execute(session, command="python3 -c 'import numpy; print(numpy.arange(3).sum())'; grep -c . /etc/resolv.conf")
    assert done["stdout"].splitlines()[0] == "3", done["stderr"]
