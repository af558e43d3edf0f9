"""Keys that several clients change at once, and the history of that, which tools/porcupine checks.

Keys are changed for some 150 operations, then others take their place: a checker's work grows fast with the operations on one key, and with those among them whose outcome is unknown. At the
end all keys are read.
"""

import json
import random
import subprocess
import threading
import time

from soak.clients import Refused, Unknown
from soak.load import until_answered

# On the same keys, and those among them whose outcome is unknown; then others take their place.
OPERATIONS, UNKNOWN = 150, 6
ACCOUNTS = 4
# Seconds that the checker has: for one set of keys, and for all.
CHECK_EACH, CHECK_ALL = 60, 900


class History:
    """A line for each operation: tools/porcupine/history.go says what it has."""

    def __init__(self, path):
        self.path, self.file, self.lock, self.unknown = path, open(path, "w"), threading.Lock(), 0

    def carry_out(self, client, number, commands, rng):
        """What each command replies. An operation that was refused leaves no line."""
        line = {"client": number, "do": [[str(word) for word in one] for one in commands], "call": time.monotonic_ns()}
        try:
            line["got"] = client.carry_out(commands, rng)
            line["return"] = time.monotonic_ns()
        except Unknown:
            self.write(line)
            raise
        self.write(line)
        return line["got"]

    def write(self, line):
        text = json.dumps(line) + "\n"
        with self.lock:
            self.file.write(text)
            self.unknown += "return" not in line

    def check(self, porcupine):
        """What the checker says, and whether all is well."""
        self.file.close()
        words = [porcupine, "-timeout", f"{CHECK_EACH}s", self.path]
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CHECK_ALL)
        except subprocess.TimeoutExpired:
            return f"{' '.join(words)} has not ended within {CHECK_ALL} s; next: run it by itself, or soak for a shorter time", False
        return done.stdout.rstrip(), done.returncode == 0


class Counter:
    """A number."""

    changes = [("incrby", 8), ("set", 3), ("setnx", 1), ("getset", 2), ("cas", 2), ("del", 1)]

    def __init__(self, allowed):
        self.verbs = [one for one in self.changes if one[0] in allowed]

    def keys(self, name):
        return [name]

    def read(self, name, rng):
        return [("get", name)]

    def change(self, name, rng, fresh, seen):
        [verb] = rng.choices(*zip(*self.verbs))
        value = {"incrby": [rng.randrange(1, 10)], "cas": [seen or 0, self.value(fresh)], "del": []}
        return [(verb, name, *value.get(verb, [self.value(fresh)]))]

    def value(self, fresh):
        # Sums behind two of them are different ones.
        return fresh * 10_000


class Text(Counter):
    """A string that grows; what is appended is found in it."""

    changes = [("append", 8), ("set", 2), ("setnx", 1), ("getset", 1), ("cas", 2), ("del", 1)]

    def value(self, fresh):
        return f"{fresh},"


class Bank:
    """Accounts, between which money goes, by transactions and scripts; read all at one moment."""

    def __init__(self, allowed):
        self.allowed = allowed

    def keys(self, name):
        return [f"{name}:{at}" for at in range(ACCOUNTS)]

    def read(self, name, rng):
        keys = self.keys(name)
        if "multi" in self.allowed and rng.random() < 0.3:
            return [("get", key) for key in keys]
        return [("mget", *keys)]

    def change(self, name, rng, fresh, seen):
        keys = self.keys(name)
        (source, to), amount, how = rng.sample(keys, 2), rng.randrange(1, 40), rng.random()
        if "multi" not in self.allowed:
            return [("incrby", to, 3 * amount)] if how < 0.3 else [("transfer", source, to, amount)]
        if how < 0.2:
            return [("incrby", key, amount) for key in keys]
        if how < 0.5:
            return [("incrby", source, -amount), ("incrby", to, amount)]
        return [("transfer", source, to, amount)]


class Keys:
    """Those of one kind that are changed now."""

    def __init__(self, name, kind):
        self.name, self.kind, self.lock = name, kind, threading.Lock()
        self.generation, self.operations, self.unknown = 0, 0, 0

    def now(self):
        return self.generation

    def called(self, generation):
        return f"{self.name}.{generation}"

    def done(self, generation, is_unknown):
        with self.lock:
            if generation == self.generation:
                self.operations, self.unknown = self.operations + 1, self.unknown + is_unknown
                if self.operations >= OPERATIONS or self.unknown >= UNKNOWN:
                    self.generation, self.operations, self.unknown = generation + 1, 0, 0


class Shared:
    """Clients on shared keys. `client` makes one of them, of a number and of the machines that it may ask; `allowed` are the commands there are."""

    def __init__(self, load, path, client, allowed):
        self.load, self.history, self.client = load, History(path), client
        self.all = [Keys("counter", Counter(allowed)), Keys("bank", Bank(allowed))]
        if "append" in allowed:
            self.all.append(Keys("text", Text(allowed)))
        self.clients = []

    def begin(self, writers, readers, alone=()):
        """Writers of each kind of keys, readers of all, and readers that ask one machine alone: its number, and what has their thread be on it."""
        for keys in self.all:
            for _ in range(writers):
                self.add([keys], 0.35)
        for _ in range(readers):
            self.add(self.all, 1)
        for at, enter in alone:
            self.add(self.all, 1, at, enter)

    def add(self, all_keys, reads, at=None, enter=None):
        number = len(self.clients)
        self.clients.append(self.client(number, at))
        self.load.begin(self.work, self.clients[-1], number, all_keys, reads, enter)

    def work(self, client, number, all_keys, reads, enter):
        if enter:
            enter()
        rng, fresh, seen = random.Random(number), 0, (None, None)
        while not self.load.over.is_set():
            keys = rng.choice(all_keys)
            generation = keys.now()
            name, fresh = keys.called(generation), fresh + 1
            is_read = rng.random() < reads
            last = seen[1] if seen[0] == name else None
            # No two clients write the same value.
            commands = keys.kind.read(name, rng) if is_read else keys.kind.change(name, rng, fresh * 100 + number, last)
            try:
                got = self.history.carry_out(client, number, commands, rng)
                keys.done(generation, False)
                self.load.answered(writes=not is_read, reads=is_read)
                if commands[0][0] == "get":
                    seen = name, got[0]
                time.sleep(rng.random() * 0.004)
            except Unknown:
                keys.done(generation, not is_read)
            except Refused:
                time.sleep(0.01)

    def read_all(self, over):
        """Each key that there has been, at the end, when all is well."""
        number, rng = len(self.clients), random.Random(0)
        client = self.client(number, None)
        for keys in self.all:
            for generation in range(keys.generation + 1):
                commands = keys.kind.read(keys.called(generation), rng)
                if until_answered(lambda: self.history.carry_out(client, number, commands, rng), over) is None:
                    return self.load.fail(f"{keys.called(generation)} cannot be read at the end")

    def check(self, porcupine):
        text, is_well = self.history.check(porcupine)
        print(text, flush=True)
        lies = sum(getattr(one, "lies", 0) for one in self.clients)
        if lies:
            print(f"{lies} lies", flush=True)
        if not is_well:
            self.load.fail(f"{self.history.path} is not known to be linearizable: see above")
