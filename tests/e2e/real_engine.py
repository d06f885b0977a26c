# SPDX-License-Identifier: Apache-2.0
"""The backends that need a Docker engine, in the end-to-end tests: one engine for the whole session, and what daemons have to know of it."""
import atexit
import contextlib
import functools
import os
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from engine import EngineError, missing, private, shared  # noqa: E402

ENGINE_BACKENDS = ("docker", "gvisor")
IMAGES = {"docker": "sandglass-test:1", "gvisor": "sandglass-gvisor:1"}
CONTAINER_ID = re.compile(r"(?<!/overlay2/)\b[0-9a-f]{64}\b")  # layers of images have such names, too

# Workers inherit it, and so have the engine of whoever has started them.
NAME = os.environ.setdefault("SANDGLASS_ENGINE", f"e2e-{os.getpid()}")
held = []  # the engine, once a test has needed one


@functools.cache
def why_not(backend="docker"):
    """Why no engine can run that backend here, or None."""
    return missing("runsc" if backend == "gvisor" else "runc")


def the_engine():
    """The engine of this test session; starts it at first use."""
    if not held:
        held.append(shared.use(NAME))
        atexit.register(release)
        excused.update(strays())
    return held[0]


def release():
    if held:
        held.pop().release()


def settings_for(backend, settings):
    """The settings with the address of the engine and an image in them, unless the test has its own."""
    if backend not in ENGINE_BACKENDS:
        return settings
    if why_not(backend):
        pytest.skip(why_not(backend))
    own = settings.get("docker", {})  # there is no registry to pull from, unless the test has one
    return {**settings, "docker": {"image": IMAGES[backend], "pull": "never", **({} if "host" in own else {"host": the_engine().host}), **own}}


def containers_of(instance):
    """Containers of the daemons of that instance, or with a name below it: names by id."""
    found = {}
    for container in the_engine().api.containers(sandglass_instance=None) if held else []:
        if f"{container['Labels']['sandglass.instance']}-".startswith(f"{instance}-"):
            found[container["Id"][:12]] = f"{container['Names']} {container['State']}"
    return found


def sandboxes_of(state):
    """Ids of the sandboxes that a daemon with this state directory has containers for."""
    return {container["Labels"]["sandglass.sandbox"] for container in the_engine().api.containers(sandglass_state=state)}


def inits_of(instance):
    """Process numbers of what runs first in each of these containers; with gVisor that is its sentry."""
    found = []
    for container in containers_of(instance):
        with contextlib.suppress(EngineError):  # removed meanwhile
            found.append(the_engine().api.inspect(container)["State"]["Pid"])
    return [pid for pid in found if pid]


excused = {}  # what was there before this worker, or was reported by one test: the others are not to fail for it


def strays():
    """Processes of the engine for containers that it does not have: shims, sentries, execs. Looked at twice, as others come and go meanwhile."""
    if not held:
        return {}
    before = private.engine_processes(the_engine().directory)
    known = {container["Id"] for container in the_engine().api.containers()}
    after = private.engine_processes(the_engine().directory)
    return {pid: command for pid, command in before.items()
            if pid in after and pid not in excused and CONTAINER_ID.search(command) and not known & set(CONTAINER_ID.findall(command))}


def leftovers(instance):
    try:
        return {"containers": containers_of(instance), "engine": strays()}
    except (OSError, EngineError) as problem:
        return {"engine": f"does not answer: {problem!r}"}


def remove_containers(instance):
    """So that what one test has left does not fail those behind it."""
    for container in containers_of(instance):
        with contextlib.suppress(OSError, EngineError):
            the_engine().api.remove(container)
    with contextlib.suppress(OSError, EngineError):
        excused.update(strays())


def differences(name):
    """Test or file name -> why it cannot hold with that backend, or over the bridge. gvisor and kubernetes are like docker, but for what "holds"
    there, and are reached over the bridge."""
    found = differences("docker") | differences("relay") if name in ("gvisor", "kubernetes") else {}
    lines = (pathlib.Path(__file__).parent / f"{name}-differences.txt").read_text().splitlines()
    found |= dict(line.rsplit(": ", 1) for line in lines if line and not line.startswith("#"))
    return {test: reason for test, reason in found.items() if reason != "holds"}
