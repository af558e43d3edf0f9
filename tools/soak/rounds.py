"""Faults, one after the other, for some minutes, and what both soaks have in common."""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from soak.clients import Liar
from soak.hosts import Hosts, isolate
from soak.group import MACHINES
from soak.load import Load

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PORCUPINE = os.path.join(os.path.dirname(TOOLS), "target/tools/porcupine")
KILLS = ["kill leader", "kill leader", "kill one", "pause leader", "pause leader", "pause one", "kill all", "stop leader", "stop one", "pause etcd", "kill etcd"]
CUTS = ["cut leader", "cut leader", "cut one", "slow leader", "slow one"]


def parser(description):
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cairn", required=True)
    made.add_argument("--minutes", type=float, default=10)
    made.add_argument("--seed", type=int, default=None)
    made.add_argument("--shared", type=int, default=3, help="clients that change each kind of shared keys")
    made.add_argument("--porcupine", default=PORCUPINE, help="the checker, which tools/setup.sh builds")
    made.add_argument("--lie", choices=Liar.KINDS, help="clients are wrong now and then: the checker must find it")
    made.add_argument("--only", default="", help="these faults alone, as in: cut,slow,kill leader")
    made.add_argument("--keep", action="store_true", help="leave the files there")
    return made


# Of clients that are to lie, before the checker is asked; and seconds more that they have for that.
LIES, LIES_SECONDS = 60, 60


def told_to_end(*_):
    """As Ctrl-C does: processes and files go. Once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("error: told to end")


class Soak:
    """What is asked, where files are, and the machines' networks and disks if they can have their own."""

    def __init__(self, asked, name, disks_fill):
        if not os.access(asked.porcupine, os.X_OK):
            sys.exit(f"error: {asked.porcupine} is not there\nnext: tools/setup.sh builds it")
        is_isolated = isolate()
        signal.signal(signal.SIGTERM, told_to_end)
        self.asked, self.load, self.liars = asked, Load(), []
        seed = asked.seed if asked.seed is not None else random.randrange(1 << 32)
        self.rng = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix=f"{name}-")
        print(f"seed {seed}, files in {self.folder}", flush=True)
        self.hosts = Hosts(self.folder, MACHINES) if is_isolated else None
        if not self.hosts:
            print("no networks of their own are to be had (root, and the command ip): no machine is cut off, slow, or full", flush=True)
        self.kinds = KILLS + (CUTS if self.hosts else []) + (["fill leader", "fill one"] if self.hosts and disks_fill else [])
        self.kinds = [kind for kind in self.kinds if any(kind.startswith(one) for one in asked.only.split(","))]
        if not self.kinds:
            sys.exit(f"error: there is no fault {asked.only}\nnext: --only with one of: {', '.join(sorted({*KILLS, *CUTS}))}")

    def alone(self):
        """For readers that ask one machine alone, and are on it."""
        return [(at, lambda at=at: self.hosts.enter(at)) for at in range(MACHINES)] if self.hosts else []

    def client(self, made):
        if not self.asked.lie:
            return made
        self.liars.append(Liar(made, self.asked.lie))
        return self.liars[-1]

    def has_lied(self):
        return not self.asked.lie or sum(liar.lies for liar in self.liars) >= LIES

    def run(self, group, begin, finish):
        """Starts machines and, with `begin`, clients; after the faults, and when all clients have ended, `finish` looks at what is there, until an event is set."""
        load = self.load
        try:
            for at in range(MACHINES):
                group.start(at)
            load.begin(group.watch, load, load.over)
            begin()
            self.await_well(group, 0, "the start")
            gaps = self.faults(group)
            load.end()
            over = threading.Event()
            timer = threading.Timer(120, over.set)
            timer.start()
            finish(over)
            timer.cancel()
            for what, found in sorted(gaps.items()):
                found.sort()
                print(f"{what:13} {len(found):3} times; no write for {found[len(found) // 2]:.2f} s (median), {found[-1]:.2f} s (longest)")
            print(f"{load.writes} writes acknowledged, {load.reads} reads, {len(load.errors)} errors")
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            try:
                load.end()
            finally:
                group.end()
            if load.errors or self.asked.keep:
                print(f"files are left in {self.folder}")
            else:
                shutil.rmtree(self.folder)
        return 1 if load.errors else 0

    def faults(self, group):
        load, end, gaps = self.load, time.monotonic() + 60 * self.asked.minutes, {}
        while not load.errors and (time.monotonic() < end or not self.has_lied() and time.monotonic() < end + LIES_SECONDS):
            with load.lock:
                load.gap, before = 0.0, load.writes
            what = self.rng.choice(self.kinds)
            group.fault(what, self.rng, load)
            self.await_well(group, before, what)
            time.sleep(self.rng.random() * 3)
            gaps.setdefault(what, []).append(load.gap)
            print(f"{what:13} no write for {load.gap:5.2f} s; {load.writes} writes, {load.reads} reads", flush=True)
        return gaps

    def await_well(self, group, before, what):
        """All is well again before the next fault: writes go on."""
        deadline = time.monotonic() + 60
        while self.load.writes < before + 100 or group.leader() is None:
            if time.monotonic() > deadline:
                return self.load.fail(f"no machine answers for a minute after: {what}")
            time.sleep(0.05)
