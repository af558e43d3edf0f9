#!/usr/bin/env python3
"""A rolling upgrade, and the way back, of three machines of `cairn serve --etcd` under the load of soak-replicated.py: one machine after the other gets the other program.

While machines of both are there, each program leads the others in turn; the others are killed and come back, one of the other program comes with an empty disk and joins, and then the leader is
killed; `cairn group status` of both programs must find all well. The old program is built in a worktree of --from below the target directory, by default the last commit before the newest wire version.

    tools/test-upgrade.py --new target/release/cairn [--from COMMIT | --old PATH]

Exit code 0 if nothing was lost, nothing stale was read, and each step was well within a minute; prints for how long no write was acknowledged in each.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

sys.dont_write_bytecode = True

from soak.group import MACHINES
from soak.load import Load

HERE = os.path.dirname(os.path.abspath(__file__))
WIRE = "crates/log/src/replicate/wire.rs"
STEP_SECONDS = 60




def loaded(name):
    """A program of this folder, whose name is no Python name."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), f"{HERE}/{name}.py")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


replicated = loaded("soak-replicated")


class Machines(replicated.Replicated):
    """Each with the program that it is to have from its next start on."""

    def __init__(self, old, folder):
        super().__init__(SimpleNamespace(cairn=old, log_size="8M"), folder, None)
        self.programs = [old] * MACHINES

    def program(self, at):
        return self.programs[at]


def git(*words):
    return subprocess.run(["git", "-C", f"{HERE}/..", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def before_newest():
    """The last commit before the one that has the newest wire version."""
    with open(f"{HERE}/../{WIRE}") as source:
        newest = re.search(r"NEWEST: u32 = \d+;", source.read()).group()
    commits = git("log", "--format=%H", f"-S{newest}", "--", WIRE).split()
    return f"{commits[-1]}^" if commits else "HEAD"


def built(commit):
    """The program of a commit, built once."""
    commit = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    target = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", f"{HERE}/../target")) + "/upgrade"
    program, tree = f"{target}/cairn-{commit[:12]}", f"{target}/tree"
    if not os.path.exists(program):
        os.makedirs(target, exist_ok=True)
        if os.path.exists(tree):
            git("worktree", "remove", "--force", tree)
        git("worktree", "add", "--detach", tree, commit)
        try:
            words = [os.environ.get("CARGO", "cargo"), "build", "--release", "--package", "cairn-cli"]
            subprocess.run(words, cwd=tree, env={**os.environ, "CARGO_TARGET_DIR": f"{target}/build"}, check=True)
            shutil.copy(f"{target}/build/release/cairn", program)
        finally:
            git("worktree", "remove", "--force", tree)
    return program


class Upgrade:
    """The group, under load, and what is done to it."""

    def __init__(self, group, load, old, new):
        self.group, self.load, self.old, self.new = group, load, old, new

    def name(self, at):
        return f"m{at} ({'new' if self.group.programs[at] == self.new else 'old'})"

    def ask(self, program, *words):
        """What `cairn group` of a program says: exit code, and all of it."""
        where = ["--etcd", self.group.etcd_url, "--prefix", "/cairn/soak", "--secret-file", "secret"]
        said = subprocess.run([program, "group", *words, *where], cwd=self.group.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=STEP_SECONDS * 5)
        return said.returncode, said.stdout + said.stderr

    def status(self, program):
        code, said = self.ask(program, "status", "--json")
        return code, json.loads(said) if said.startswith("{") else said

    def until(self, what, there):
        deadline = time.monotonic() + STEP_SECONDS
        while not self.load.errors:
            found = there()
            if found:
                return found
            if time.monotonic() > deadline:
                self.load.fail(f"not within {STEP_SECONDS} s: {what}; {self.ask(self.new, 'status')}")
            time.sleep(0.1)
        raise SystemExit("an error: see above")

    def well(self):
        """All is well, as both programs see it, and writes go on."""
        before = self.load.writes
        self.until("writes go on", lambda: self.load.writes >= before + 100)
        for program in self.old, self.new:
            self.until(f"{program} finds all well", lambda program=program: self.status(program)[0] == 0)

    def step(self, what, act):
        with self.load.lock:
            self.load.gap, self.load.last = 0.0, time.monotonic()
        act()
        self.well()
        print(f"{time.monotonic() - self.group.began:7.2f} {what:45} no write for {self.load.gap:5.2f} s; {self.load.writes} writes", flush=True)

    def replace(self, at, program):
        """A machine is stopped, and started with the other program."""

        def act():
            self.group.signal(at, signal.SIGTERM)
            if self.group.running[at].wait(timeout=STEP_SECONDS) != 0:
                self.load.fail(f"machine {at} did not stop well")
            self.group.programs[at] = program
            self.group.start(at)

        self.step(f"m{at} gets the {'new' if program == self.new else 'old'} program", act)

    def lead(self, at):
        """A machine is made the leader, by its own program; of its wire versions the new one knows all."""

        def act():
            if self.group.leader() != at:
                self.until("the leadership is transferred", lambda: self.ask(self.group.programs[at], "transfer", "--to", f"m{at}")[0] == 0)
                self.until(f"m{at} leads", lambda: self.group.leader() == at)

        self.step(f"{self.name(at)} leads", act)
        _, status = self.status(self.new)
        told = {copy["machine"]: copy.get("wire") for copy in status["copies"]}
        if self.group.programs[at] == self.new:
            for machine in range(MACHINES):
                is_new = self.group.programs[machine] == self.new
                if is_new != (told[f"m{machine}"] == told[f"m{at}"]):
                    self.load.fail(f"{self.name(machine)} under {self.name(at)}: wire versions {told}")

    def lose(self, at):
        def act():
            self.group.signal(at, signal.SIGKILL)
            time.sleep(1)
            self.group.start(at)

        self.step(f"{self.name(at)} is killed, and comes back", act)

    def empty(self, at):
        """A machine comes back with an empty disk, and joins."""

        def act():
            self.group.signal(at, signal.SIGKILL)
            for file in "store", "log":
                os.unlink(f"{self.group.folder}/{at}{file}")
            self.group.start(at)
            address = "{}:{}".format(*self.group.copies[at])

            def lost():
                status = self.status(self.new)[1]
                away = [copy["id"] for copy in status["copies"] if not copy["live"]] if isinstance(status, dict) else []
                is_new = isinstance(status, dict) and any("group join" in (machine.get("why") or "") for machine in status["machines"])
                return away if len(away) == 1 and is_new else None

            self.until(f"m{at} is found new", lambda: lost() is not None)
            away = lost()
            self.until("the lost replica is removed", lambda: self.ask(self.old, "remove", away[0])[0] == 0)
            self.until("the new one joins", lambda: self.ask(self.new, "join", address)[0] == 0)

        self.step(f"{self.name(at)} has an empty disk, and joins", act)

    def round(self, program, rng):
        """All machines get the program, those that follow first; while both are there, each leads, and loses machines of both."""
        first = self.group.leader()
        order = [at for at in range(MACHINES) if at != first]
        rng.shuffle(order)
        for at in [*order, first]:
            self.replace(at, program)
            of = {which: [one for one in range(MACHINES) if self.group.programs[one] == which] for which in (self.old, self.new)}
            if not all(of.values()):
                continue
            for which in self.old, self.new:
                leads = rng.choice(of[which])
                self.lead(leads)
                others = [one for one in range(MACHINES) if one != leads]
                for other in others:
                    self.lose(other)
                # The one of the other program.
                self.empty(next(one for one in others if self.group.programs[one] != which))
                # One of the others takes over.
                self.lose(leads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", required=True)
    parser.add_argument("--from", dest="commit", default="", help="commit of the old program")
    parser.add_argument("--old", help="the old program itself")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--value", type=int, default=300)
    parser.add_argument("--keep", action="store_true", help="leave the files there")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.randrange(1 << 32)
    rng = random.Random(seed)
    old = os.path.abspath(asked.old) if asked.old else built(asked.commit or before_newest())
    new = os.path.abspath(asked.new)
    folder = tempfile.mkdtemp(prefix="test-upgrade-")
    print(f"seed {seed}, files in {folder}, from {old}", flush=True)
    group, load = Machines(old, folder), Load()
    registers = replicated.Registers(load, asked.writers)
    upgrade = Upgrade(group, load, old, new)
    try:
        for at in range(MACHINES):
            group.start(at)
        load.begin(group.watch, load, load.over)
        for own in range(asked.writers):
            load.begin(registers.write, group.clients, own, asked.value)
        for _ in range(2):
            load.begin(registers.read_any, group.clients)
        upgrade.step("all have the old program", lambda: upgrade.until("one leads", lambda: group.leader() is not None))
        upgrade.round(new, rng)
        upgrade.round(old, rng)
        load.end()
        last = threading.Event()
        timer = threading.Timer(STEP_SECONDS, last.set)
        timer.start()
        registers.read_all(group.clients, last)
        timer.cancel()
        print(f"{load.writes} writes acknowledged, {load.reads} reads, {len(load.errors)} errors")
    finally:
        load.end()
        group.end()
        if load.errors or asked.keep:
            print(f"files are left in {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if load.errors else 0


if __name__ == "__main__":
    sys.exit(main())
