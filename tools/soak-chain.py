#!/usr/bin/env python3
"""Three machines of `cairn chain serve` under load: killed, paused, restarted, one or all, for some minutes. As root each has a network of its own, and is cut off and slowed down to 300 KB/s,
too. Their etcd is paused and killed.

Clients change keys that they share (tools/soak/shared.py): half of the changes without a number, so that their outcome may be unknown; half with one (ONCE), asked again, at any machine,
until there is a reply, and carried out once. A reader on each machine asks that one alone, also while it is cut off. The history is written down, and tools/porcupine checks it at the end.
Every key is read then.

    tools/soak-chain.py --cairn target/release/cairn --minutes 10

Exit code 0 if nothing was lost, nothing was done twice, and nothing stale was read; prints for how long no write was acknowledged at each fault.
"""

import os
import sys

sys.dont_write_bytecode = True

from soak.clients import Chain, Client, Refused, Unknown
from soak.group import Group
from soak.rounds import Soak, parser
from soak.shared import Shared

COMMANDS = "get mget set incrby del transfer".split()
# An etcd that ends a lease of 2 s in time, and another one when a write takes long beside all else that runs here.
ETCD = ["--heartbeat-interval", "50", "--election-timeout", "500"]


class Members(Group):
    def __init__(self, asked, folder, hosts):
        super().__init__(asked.cairn, folder, hosts, ETCD)
        self.more = asked.serve

    def words(self, at):
        words = f"chain serve {self.path(at, 'copy')} --machine {at + 1} --first-members 1,2,3 --etcd {self.etcd_url} --prefix /cairn/soak"
        words += " --listen {}:{} --clients {}:{}".format(*self.copies[at], *self.clients[at])
        return words + f" --secret-file secret --ttl 2 --size 16M --queue 1M{' --open' if self.hosts else ''} {self.more}"

    def leader(self):
        for at, address in enumerate(self.clients):
            try:
                lines = Client([address]).ask("INFO").split()
                if "role:head" in lines and "has_lease:1" in lines:
                    return at
            except (Refused, Unknown):
                pass
        return None


def main():
    options = parser(__doc__)
    options.add_argument("--serve", default="", help="further options of each machine's command, as in --serve=--commit-within=5")
    asked = options.parse_args()
    asked.cairn = os.path.abspath(asked.cairn)
    soak = Soak(asked, "soak-chain", disks_fill=False)
    group = Members(asked, soak.folder, soak.hosts)
    machines = lambda at: group.clients if at is None else [group.clients[at]]
    shared = Shared(soak.load, f"{soak.folder}/history", lambda number, at: soak.client(Chain(machines(at), number + 1)), COMMANDS)

    def begin():
        shared.begin(asked.shared, 1, soak.alone())

    def finish(over):
        shared.read_all(over)
        shared.check(asked.porcupine)

    return soak.run(group, begin, finish)


if __name__ == "__main__":
    sys.exit(main())
