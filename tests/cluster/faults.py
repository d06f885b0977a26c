# SPDX-License-Identifier: Apache-2.0
"""Faults of a cluster. Each has a beginning and an end; two may be under way at once, but only one that is about the store."""
import random
import signal
import threading
import time

from rig import LEASE_S, now

SHORT_S, LONG_S = (0.1, LEASE_S / 2), (LEASE_S * 1.1, LEASE_S * 2)
TWO_AT_ONCE = 0.2  # how often


class Injector:
    """Makes one fault after the other, by a random number generator; `report` is told what was done."""

    def __init__(self, rig, chance, report=print):
        self.rig, self.chance, self.report = rig, chance, report
        self.done = []
        self.of_nodes = [self.cut_from_store, self.cut_from_store, self.cut_from_nodes, self.cut_from_all, self.cut_one_way, self.cut_for_moments,
                         self.pause_daemon, self.pause_daemon, self.kill_daemon, self.kill_daemon, self.restart_daemon, self.jump_wall, self.suspend]
        self.of_store = [self.restart_store, self.pause_store] + [self.fail_over, self.fail_over] * bool(rig.store.sentinels)

    def inject(self, only=None):
        """One fault, or two of different nodes; what they raise is raised here."""
        chosen = [self.chance.choice([fault for fault in self.of_nodes + self.of_store if not only or fault.__name__ in only])]
        others = [fault for fault in self.of_nodes if not only or fault.__name__ in only]
        if others and len(self.rig.nodes) > 1 and self.chance.random() < TWO_AT_ONCE:
            chosen.append(self.chance.choice(others))
        nodes = self.chance.sample(sorted(self.rig.nodes), len(chosen))
        problems = []
        threads = [threading.Thread(target=self.make, args=(fault, self.rig.nodes[name], random.Random(self.chance.random()), problems))
                   for fault, name in zip(chosen, nodes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]

    def make(self, fault, node, chance, problems):
        seconds = chance.uniform(*(LONG_S if chance.random() < 0.4 else SHORT_S))
        begin = now()
        try:
            text = fault(node, seconds, chance)
        except Exception as problem:  # for the thread that waits
            problems.append(problem)
            return
        self.done.append(fault.__name__)
        self.rig.recorder.add("fault", kind=fault.__name__, node=node.name, begin=begin, end=now(), text=text)
        self.report(f"{len(self.done)}: {fault.__name__} {node.name} {text} ({now() - begin:.1f} s)")

    # The network.

    def cut(self, node, others, seconds, directions=("in", "out")):
        for other in others:
            self.rig.network.cut(node.machine, other, directions)
        time.sleep(seconds)
        for other in others:
            self.rig.network.mend(node.machine, other)
        return f"from {' '.join(others)} {'/'.join(directions)} for {seconds:.1f} s"

    def cut_from_store(self, node, seconds, chance):
        return self.cut(node, self.rig.store.machines, seconds)

    def other_nodes(self, node):
        return [name for name in self.rig.nodes if name != node.name]

    def cut_from_nodes(self, node, seconds, chance):
        others = self.other_nodes(node)
        return self.cut(node, chance.sample(others, chance.randint(1, len(others))) if others else [], seconds)

    def cut_from_all(self, node, seconds, chance):
        return self.cut(node, [*self.rig.store.machines, *self.other_nodes(node)], seconds)

    def cut_one_way(self, node, seconds, chance):
        """Requests arrive and answers do not, or the other way round."""
        return self.cut(node, [*self.rig.store.machines, *self.other_nodes(node)], seconds, (chance.choice(("in", "out")),))

    def cut_for_moments(self, node, seconds, chance):
        """A network that comes and goes."""
        for _ in range(4):
            self.cut(node, self.rig.store.machines, seconds / 8)
            time.sleep(seconds / 8)
        return f"4 times in {seconds:.1f} s"

    # Daemons.

    def pause_daemon(self, node, seconds, chance):
        node.signal(signal.SIGSTOP)
        time.sleep(seconds)
        node.signal(signal.SIGCONT)
        return f"for {seconds:.1f} s"

    def kill_daemon(self, node, seconds, chance):
        node.kill()
        time.sleep(seconds)
        node.start()
        return f"for {seconds:.1f} s"

    def restart_daemon(self, node, seconds, chance):
        problem = node.stop()
        time.sleep(min(seconds, 0.5))
        node.start()
        if problem:
            self.rig.recorder.add("problem", text=problem)
        return problem or "stopped in time"

    def jump_wall(self, node, _, chance):
        by = chance.choice((-1, 1)) * chance.uniform(0.5, 300)
        node.jump(wall_s=by)
        return f"by {by:.1f} s"

    def suspend(self, node, seconds, chance):
        """The whole machine stands still: its clocks go on, its processes do not."""
        node.signal(signal.SIGSTOP)
        time.sleep(0.1)
        node.jump(wall_s=seconds, boot_s=seconds)
        node.signal(signal.SIGCONT)
        return f"for {seconds:.1f} s"

    # The store.

    def restart_store(self, _, seconds, chance):
        master = self.rig.store.wait_until(self.rig.store.master, "there is a master")
        if self.rig.store.sentinels:
            return self.fail_over(None, seconds, chance)  # the sentinels would not wait
        master.kill()
        time.sleep(min(seconds, LEASE_S * 1.5))
        master.start()
        return f"away for {seconds:.1f} s"

    def pause_store(self, _, seconds, chance):
        master = self.rig.store.wait_until(self.rig.store.master, "there is a master")
        seconds = min(seconds, 0.7) if self.rig.store.sentinels else seconds  # less than what makes the sentinels act
        master.signal(signal.SIGSTOP)
        time.sleep(seconds)
        master.signal(signal.SIGCONT)
        return f"for {seconds:.1f} s"

    def fail_over(self, _, __, chance):
        is_killed = chance.random() < 0.7
        self.rig.store.fail_over(is_killed)
        return "after a kill" if is_killed else "asked for"
