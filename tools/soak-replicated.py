#!/usr/bin/env python3
"""Three machines of `cairn serve --etcd` under load: killed, paused, restarted, one or all, for some minutes. As root each has a network and a disk of its own, and is cut off, slowed
down to 300 KB/s, and has no room on its disk, too. Their etcd is paused and killed.

Two kinds of clients. Each writer of the first has a register of its own, into which it writes 1, 2, 3, ...; all clients read all of them. For such registers a history is linearizable
exactly if each read gives at least what was acknowledged, or read by any client, before it began, and at most what was sent before it ended. A write without an answer, or in doubt, may be
there or not: the writer reads before it goes on. That is checked at once, on very many operations.

Clients of the second kind change keys that they share, with single commands, scripts and MULTI (tools/soak/shared.py); that history is written down, and tools/porcupine checks it at
the end. Both ask any machine that answers; a reader on each machine asks that one alone, also while it is cut off from all others. At the end every key is read.

    tools/soak-replicated.py --cairn target/release/cairn --minutes 10

Exit code 0 if nothing was lost and nothing stale was read; prints for how long no write was acknowledged at each fault.
"""

import os
import random
import sys
import time

sys.dont_write_bytecode = True

from soak.clients import Client, Error, Refused, Server, Unknown
from soak.group import Group
from soak.load import until_answered
from soak.rounds import Soak, parser
from soak.shared import Shared

COMMANDS = "get mget set setnx getset incrby append del cas transfer multi".split()


class Replicated(Group):
    def __init__(self, asked, folder, hosts):
        super().__init__(asked.cairn, folder, hosts)
        self.log_size = asked.log_size

    def words(self, at):
        words = f"serve {self.path(at, 'store')} --log {self.path(at, 'log')} --etcd {self.etcd_url} --prefix /cairn/soak --name m{at}"
        words += " --listen {}:{} --redis {}:{}".format(*self.copies[at], *self.clients[at])
        return words + f" --secret-file secret --log-size {self.log_size} --domain emulated --lease 2{' --open' if self.hosts else ''}"

    def leader(self):
        for at, address in enumerate(self.clients):
            try:
                if Client([address]).ask("ROLE")[0] == "master":
                    return at
            except (Refused, Unknown):
                pass
        return None


class Registers:
    """What is known of the registers with one writer each."""

    def __init__(self, load, writers):
        self.load, self.least, self.most = load, [0] * writers, [0] * writers

    def read(self, client, of):
        with self.load.lock:
            least = self.least[of]
        value = int(client.ask("GET", f"r{of}") or 0)
        with self.load.lock:
            most = self.most[of]
            if least <= value:
                self.least[of] = max(self.least[of], value)
        self.load.answered(reads=1)
        if not least <= value <= most:
            self.load.fail(f"r{of} is {value}, and must be {least} to {most}")
        return value

    def write(self, addresses, own, size):
        client, value = Client(addresses), 0
        while not self.load.over.is_set():
            value += 1
            with self.load.lock:
                self.most[own] = value
            try:
                client.ask("MULTI")
                words = [("SET", f"r{own}", value), ("SET", f"x{own}:{value % 50}", "x" * size), ("EXEC",)]
                client.checked(client.exchange(words)[-1])
                with self.load.lock:
                    self.least[own] = max(self.least[own], value)
                self.load.answered(writes=1)
            except (Refused, Unknown):
                time.sleep(0.01)
                # It may be there, now or a moment later only if it is there now: what was in doubt is decided by the machine that leads.
                found = until_answered(lambda: self.read(client, own), self.load.over)
                if found is not None and found not in (value - 1, value):
                    self.load.fail(f"r{own} is {found} after {value - 1} was acknowledged and {value} was sent")
                if found is not None and found < value:
                    value = found

    def read_any(self, addresses, enter=None):
        if enter:
            enter()
        client, rng = Client(addresses), random.Random(7)
        while not self.load.over.is_set():
            try:
                self.read(client, rng.randrange(len(self.least)))
            except (Refused, Unknown):
                time.sleep(0.01)

    def read_all(self, addresses, over):
        client = Client(addresses)
        for own in range(len(self.least)):
            if until_answered(lambda: self.read(client, own), over) is None:
                self.load.fail(f"r{own} cannot be read at the end")


def main():
    options = parser(__doc__)
    options.add_argument("--writers", type=int, default=8, help="clients with a register of their own")
    options.add_argument("--log-size", default="1M")
    options.add_argument("--value", type=int, default=1000, help="bytes that each write to a register has beside: with a small log, machines that were away need a seed")
    asked = options.parse_args()
    asked.cairn = os.path.abspath(asked.cairn)
    soak = Soak(asked, "soak-replicated", disks_fill=True)
    group = Replicated(asked, soak.folder, soak.hosts)
    registers = Registers(soak.load, asked.writers)
    machines = lambda at: group.clients if at is None else [group.clients[at]]
    shared = Shared(soak.load, f"{soak.folder}/history", lambda number, at: soak.client(Server(machines(at))), COMMANDS)

    def begin():
        for own in range(asked.writers):
            soak.load.begin(registers.write, group.clients, own, asked.value)
        if asked.writers:
            for _ in range(2):
                soak.load.begin(registers.read_any, group.clients)
            for at, enter in soak.alone():
                soak.load.begin(registers.read_any, machines(at), enter)
        shared.begin(asked.shared, 1, soak.alone())

    def finish(over):
        registers.read_all(group.clients, over)
        shared.read_all(over)
        shared.check(asked.porcupine)

    return soak.run(group, begin, finish)


if __name__ == "__main__":
    sys.exit(main())
