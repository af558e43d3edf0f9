#!/usr/bin/env -S python3 -B
"""Cuts the power of a guest again and again while a worker in it updates a pool, and demands after every cut that all that was
acknowledged is still there.

The acknowledgement leaves the guest: the worker writes "ack COUNTER NUMBER" to a serial port, which is a file of this
host, and only after the drain has returned. What stands in that file when QEMU is killed is what the next boot must
find. One boot verifies the previous state and then goes on writing, so N cuts take N + 1 boots.

Exit status: 0 everything acknowledged survived every cut, 1 something was lost or damaged, 2 the machinery failed.
"""

import argparse
import dataclasses
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import disk_cache

HERE = pathlib.Path(__file__).resolve().parent
VM_DIR = pathlib.Path(os.environ.get("CAIRN_VM_DIR", "/var/tmp/cairn-vm"))
BOOT_TIMEOUT_S = 120
# What is counted and acknowledged: the records of two writers, and the pages the pool grew by; or the transactions of three writers.
COUNTERS = 3
# How the pool's directory comes about in the guest, and the persistence domain that must be detected there.
MEDIA = {
    "disk": {"flag": "-d", "directory": "/mnt/disk", "options": [], "domain": "file"},
    "dax": {"flag": "-p", "directory": "/mnt/pmem", "options": ["-O", "dax=always"], "domain": "pmem"},
    "nodax": {"flag": "-p", "directory": "/mnt/pmem", "options": ["-O", "dax=never"], "domain": "file"},
}


class Lost(Exception):
    """The pool does not hold what was acknowledged."""


class Machinery(Exception):
    """The test could not be carried out."""


@dataclasses.dataclass
class Boot:
    """What one boot printed."""

    up_s: float | None = None
    opened: bool = False
    created: bool = False
    found: list[int] | None = None
    torn: int = 0
    acknowledged: list[int] = dataclasses.field(default_factory=lambda: [0] * COUNTERS)
    acks: int = 0
    domain: str | None = None
    failure: str | None = None
    exit_status: int | None = None

    def take(self, line: str) -> None:
        """Takes in one complete line of the guest's output."""
        words = line.split()
        match words:
            case ["@@UP", seconds]:
                self.up_s = float(seconds)
            case ["@@EXIT", status]:
                self.exit_status = int(status)
            case ["@@MOUNT-FAILED", *_]:
                self.failure = line
            case ["created"]:
                self.created = True
            case ["domain", name]:
                self.domain = name
            case ["found", *numbers]:
                self.found = [int(n) for n in numbers]
            case ["torn", *_]:
                self.torn += 1
            case ["ack", counter, number]:
                self.acks += 1
                self.acknowledged[int(counter)] = int(number)
            case ["LOST" | "DAMAGED" | "ERROR", *_]:
                self.failure = self.failure or line


class Guest:
    """One boot of the guest."""

    def __init__(self, work: pathlib.Path, arguments: list[str]):
        self.output = work / "output"
        self.output.write_bytes(b"")
        self.work = work
        self.boot = Boot()
        self.taken = 0
        command = [str(HERE / "run.sh"), "-w", str(work), "-o", str(self.output), *arguments]
        # run.sh becomes QEMU: the process to kill is this one.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.deadline = time.monotonic() + BOOT_TIMEOUT_S

    def poll(self) -> None:
        """Takes in what was printed since the last call; a line without its end has not been said."""
        with open(self.output, "rb") as file:
            file.seek(self.taken)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self.taken += len(complete)
        for line in complete.decode(errors="replace").splitlines():
            self.boot.take(line)

    def wait(self, condition) -> bool:
        """Waits until `condition(boot)` holds; False if the guest ended or failed before."""
        while not condition(self.boot):
            ended = self.process.poll() is not None
            self.poll()
            if condition(self.boot):
                break
            if ended or self.boot.failure or self.boot.exit_status is not None:
                return False
            if time.monotonic() > self.deadline:
                raise Machinery(f"the guest said nothing for {BOOT_TIMEOUT_S} s; its console: {self.console()}")
            time.sleep(0.002)
        return True

    def kill(self) -> None:
        """Cuts the power, then takes in the last words."""
        self.process.kill()
        self.process.wait()
        self.poll()

    def console(self) -> str:
        """The last lines of the guest kernel."""
        path = self.work / "kernel-console"
        return path.read_text(errors="replace")[-2000:] if path.exists() else "(none)"


@dataclasses.dataclass
class Totals:
    """What all boots together have shown."""

    kills: int = 0
    kills_while_opening: int = 0
    acks: int = 0
    in_doubt_found: int = 0
    torn: int = 0
    cache_cuts: int = 0
    cached_sectors: int = 0
    lost_sectors: int = 0
    boot_s: list[float] = dataclasses.field(default_factory=list)


class Test:
    """A pool, and what it must hold."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.medium = MEDIA[options.medium]
        self.rng = random.Random(options.seed)
        control = "-no-sync" * options.no_sync + "-no-barrier" * options.no_barrier
        worker = f"-{pathlib.Path(options.worker).stem}-{options.mode}" if options.mode else ""
        self.name = options.medium + worker
        self.work = VM_DIR / f"kill-{self.name}{control}"
        self.work.mkdir(parents=True, exist_ok=True)
        self.image = self.work / "image"
        self.image.unlink(missing_ok=True)
        self.need = [0] * COUNTERS
        self.created = False
        self.totals = Totals()

    def start(self, last: bool) -> Guest:
        job = f"/job/{pathlib.Path(self.options.worker).name}"
        worker = [job, self.medium["directory"], self.options.mode or "verify-and-write"]
        worker += ["--need", ",".join(map(str, self.need)), "--domain", self.medium["domain"]]
        worker += ["--created"] if self.created else []
        worker += ["--no-sync"] if self.options.no_sync else []
        worker += ["--verify-only"] if last else []
        # With the sync stubbed out nothing may reach the disk by the kernel's own doing; otherwise half of the boots have
        # unsynced stores written back early, in any order.
        writeback = "0" if self.options.no_sync else self.rng.choice(["0", "2"])
        where = [self.medium["flag"], str(self.image), *self.medium["options"]]
        where += ["-D", "barrier=0"] if self.options.no_barrier else []
        self.before = None
        if not last and self.options.medium == "disk" and self.image.exists() and self.rng.random() < 0.7:
            # This cut will also take what is in the disk's write cache.
            self.before = self.work / "image-before"
            sparse_copy(self.image, self.before)
            where += ["-l", str(self.work / "log")]
        return Guest(self.work, [*where, "-W", writeback, "-f", self.options.worker, *worker])

    def check(self, guest: Guest) -> None:
        """Judges what this boot found of what earlier ones were told."""
        boot = guest.boot
        if boot.failure:
            # A disk that loses what it was never told to keep may lose the file system too.
            unmountable = self.options.no_barrier and boot.failure.startswith("@@MOUNT-FAILED")
            raise (Lost if unmountable or boot.failure.startswith(("LOST", "DAMAGED")) else Machinery)(boot.failure)
        if boot.found is None:
            return
        if any(found < need for found, need in zip(boot.found, self.need)):
            raise Lost(f"LOST found {boot.found}, acknowledged {self.need}")
        if boot.domain != self.medium["domain"]:
            raise Machinery(f"domain {boot.domain}, expected {self.medium['domain']}")
        self.totals.torn += boot.torn
        self.totals.in_doubt_found += sum(f - n for f, n in zip(boot.found, self.need))
        # What was found once must stay: it was read from the medium after the cut.
        self.need = list(boot.found)

    def cut(self) -> None:
        """One boot that verifies, writes and dies."""
        guest = self.start(last=False)
        started = time.monotonic()
        try:
            if not guest.wait(lambda boot: boot.up_s is not None):
                self.check(guest)
                raise Machinery(f"no boot ({guest.boot.failure}); console: {guest.console()}")
            self.totals.boot_s.append(time.monotonic() - started)
            if self.rng.random() < 0.15:
                # While the pool is created, opened or recovered.
                time.sleep(self.rng.uniform(0, 0.3))
            else:
                acks = self.rng.randint(1, 400)
                if not guest.wait(lambda boot: boot.acks >= acks):
                    self.check(guest)
                    raise Machinery(f"the worker ended: {guest.output.read_text(errors='replace')[-2000:]}")
                time.sleep(self.rng.uniform(0, 0.05))
        finally:
            guest.kill()
        self.check(guest)
        self.lose_disk_cache()
        boot = guest.boot
        self.totals.kills += 1
        self.totals.kills_while_opening += boot.acks == 0
        self.totals.acks += boot.acks
        self.created |= boot.created
        self.need = [max(pair) for pair in zip(self.need, boot.acknowledged)]
        print(f"{self.name}: cut {self.totals.kills}: {boot.acks} acknowledged here, must now hold {self.need}", flush=True)

    def lose_disk_cache(self) -> None:
        """Makes the image what a disk that loses its cache would have kept."""
        if self.before is None:
            return
        try:
            cached, lost = disk_cache.lose(self.before, self.work / "log", self.rng)
        except ValueError as unusable:
            print(f"{self.name}: the disk's cache is kept this time: {unusable}")
            return
        self.before.replace(self.image)
        self.totals.cache_cuts += 1
        self.totals.cached_sectors += cached
        self.totals.lost_sectors += lost

    def run(self) -> None:
        """All cuts, then a boot that only verifies."""
        for _ in range(self.options.kills):
            self.cut()
        guest = self.start(last=True)
        try:
            guest.wait(lambda boot: boot.exit_status is not None)
        finally:
            guest.kill()
        self.check(guest)
        if guest.boot.found is None or guest.boot.exit_status != 0:
            raise Machinery(f"no verdict: {guest.output.read_text(errors='replace')[-2000:]}")


def sparse_copy(source: pathlib.Path, to: pathlib.Path) -> None:
    """Copies without filling holes."""
    to.unlink(missing_ok=True)
    subprocess.run(["cp", "--sparse=always", str(source), str(to)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("medium", choices=MEDIA)
    parser.add_argument("--worker", required=True, help="the static worker binary")
    parser.add_argument("--mode", help="what the worker is told to work with: the policy of a heap, for example")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--no-sync", action="store_true", help="the negative control: drains do nothing")
    parser.add_argument("--no-barrier", action="store_true", help="control: syncs do not flush the disk's cache")
    options = parser.parse_args()
    # Being told to stop ends the guest too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    test = Test(options)
    print(f"{test.name}: {options.kills} cuts, seed {options.seed}", flush=True)
    try:
        test.run()
        status = 0
    except Lost as lost:
        print(f"{test.name}: after cut {test.totals.kills}: {lost}")
        status = 1
    except Machinery as machinery:
        print(f"{test.name}: could not test: {machinery}")
        return 2
    totals = test.totals
    boot_s = sorted(totals.boot_s)
    print(
        f"{test.name}: {'LOST DATA' if status else 'nothing acknowledged was lost'}: {totals.kills} cuts "
        f"({totals.kills_while_opening} before the first acknowledgement), {totals.acks} acknowledgements, "
        f"{totals.in_doubt_found} more found than acknowledged, {totals.torn} torn records; {totals.cache_cuts} cuts also lost "
        f"{totals.lost_sectors} of {totals.cached_sectors} sectors in the disk's cache; boot {boot_s[len(boot_s) // 2]:.1f} s (median)"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
