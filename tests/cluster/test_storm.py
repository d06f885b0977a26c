# SPDX-License-Identifier: Apache-2.0
"""Three daemons on machines of their own under load: a few faults of each kind that matters most. `scripts/test --cluster` has hundreds, at random."""
import os
import random

import pytest

import rig
import storm

SEED = int(os.environ.get("SANDGLASS_SEED", random.SystemRandom().randrange(10 ** 6)))

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=str(rig.missing()))


def run(only, faults, **options):
    print(f"SANDGLASS_SEED={SEED}")
    problems = storm.Storm(("a", "b", "c"), faults, SEED, clients=3, only=only, **options).run()
    assert not problems, f"SANDGLASS_SEED={SEED}: {problems[:10]}"


def test_a_node_that_is_cut_off_stopped_or_killed_loses_nothing_and_does_nothing_twice():
    run(("cut_from_store", "pause_daemon", "kill_daemon", "cut_from_nodes"), 5)
