"""Clients of Redis' protocol: what they ask, and what became of it."""

import socket
import time


class Refused(Exception):
    """Nothing was done: the answer is an error that does not say that it is in doubt, or there is no connection."""


class Unknown(Exception):
    """It may have been done, or may be done later, or never."""


class Error(str):
    """A reply that is an error."""


class Client:
    """Asks one machine after the other until one answers."""

    def __init__(self, addresses):
        self.addresses, self.at, self.socket, self.file = addresses, 0, None, None

    def connect(self):
        if self.socket is None:
            try:
                self.socket = socket.create_connection(self.addresses[self.at], timeout=1.0)
                self.socket.settimeout(1.5)
                self.file = self.socket.makefile("rb")
            except OSError as error:
                self.leave()
                raise Refused(str(error)) from error

    def exchange(self, requests):
        """The replies to some requests, sent at once; Refused if there is no connection."""
        self.connect()
        try:
            self.socket.sendall(b"".join(encoded(words) for words in requests))
            return [self.reply() for _ in requests]
        except OSError as error:
            self.leave()
            raise Unknown(str(error)) from error

    def ask(self, *words):
        """One reply that is no error."""
        [reply] = self.exchange([words])
        return self.checked(reply)

    def checked(self, reply):
        if isinstance(reply, Error):
            self.leave()
            raise (Unknown if "in doubt" in reply or reply.startswith("UNKNOWN") else Refused)(reply)
        return reply

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("closed")
        kind, text = line[:1], line[1:-2].decode()
        if kind == b"-":
            return Error(text)
        if kind in b"+:":
            return text
        if text == "-1":
            return None
        if kind == b"*":
            return [self.reply() for _ in range(int(text))]
        value = self.file.read(int(text) + 2)
        if not value.endswith(b"\r\n"):
            raise OSError("closed")
        return value[:-2].decode()

    def leave(self, to=None):
        """Another machine is next: this one, or the one behind."""
        if self.socket:
            self.socket.close()
        self.socket, self.at = None, (self.at + 1) % len(self.addresses) if to is None else to


def encoded(words):
    request = b"*%d\r\n" % len(words)
    for word in words:
        word = str(word).encode()
        request += b"$%d\r\n%s\r\n" % (len(word), word)
    return request


CAS = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) return 1 end return 0"
TRANSFER = """
local has, amount = tonumber(redis.call('GET', KEYS[1]) or 0), tonumber(ARGV[1])
if has < amount then return 'insufficient' end
redis.call('INCRBY', KEYS[2], amount)
return tostring(redis.call('DECRBY', KEYS[1], amount))
"""
# The same reads, by a script.
READ = "return redis.call('MGET', unpack(KEYS))"


class Server:
    """`cairn serve`. Operations are lists of commands of tools/porcupine/model.go; several are one transaction."""

    def __init__(self, addresses):
        self.client = Client(addresses)

    def carry_out(self, commands, rng):
        """What each command replies."""
        if len(commands) == 1:
            return [self.client.ask(*self.words(commands[0], rng))]
        # What follows MULTI is sent when it is certain that it is in the transaction.
        try:
            self.client.ask("MULTI")
        except Unknown as error:
            raise Refused(str(error)) from error
        replies = self.client.exchange([*(self.words(one, rng) for one in commands), ("EXEC",)])
        return self.client.checked(replies[-1])

    def words(self, command, rng):
        verb, *arguments = command
        if verb == "cas":
            return ("EVAL", CAS, 1, *arguments)
        if verb == "transfer":
            return ("EVAL", TRANSFER, 2, *arguments)
        if verb == "mget" and rng.random() < 0.5:
            return ("EVAL", READ, len(arguments), *arguments)
        return (verb.upper(), *arguments)


class Chain:
    """`cairn chain serve`. Half of the changes are asked with a number, again and again until there is a reply: one operation, however often it is asked."""

    # Seconds; then the outcome is unknown all the same.
    AGAIN = 20

    def __init__(self, addresses, number):
        self.client, self.number, self.last = Client(addresses), number, 0

    def carry_out(self, commands, rng):
        [[verb, *arguments]] = commands
        words = (verb.upper(), *arguments)
        if verb in ("get", "mget") or rng.random() < 0.5:
            return [self.ask(words)]
        self.last += 1
        words, end, asked = ("ONCE", self.number, self.last, *words), time.monotonic() + self.AGAIN, False
        while True:
            try:
                return [self.ask(words)]
            except Unknown as error:
                asked, why = True, error
            except Refused as error:
                # Of this attempt; an earlier one may have been carried out, or may still be.
                why = error
                if not asked:
                    raise
            if time.monotonic() > end:
                raise Unknown(str(why))
            time.sleep(0.01)

    def ask(self, words):
        [reply] = self.client.exchange([words])
        if isinstance(reply, Error) and reply.startswith("INSUFFICIENT"):
            return "insufficient"
        if isinstance(reply, Error) and reply.startswith("MOVED"):
            host, port = reply.split()[2].rsplit(":", 1)
            to = [at for at, address in enumerate(self.client.addresses) if address == (host, int(port))]
            self.client.leave(to[0] if to else None)
            raise Refused(reply)
        if isinstance(reply, Error) and not reply.startswith(("TRYAGAIN", "UNKNOWN")):
            raise AssertionError(f"{words}: {reply}")
        return self.client.checked(reply)


class Liar:
    """A client that is wrong now and then, for tests of the checker. lost: a SET is said to be acknowledged that was never sent; twice: an INCRBY is sent twice; stale: a GET has the reply
    of the client's GET before it.
    """

    KINDS = "lost", "twice", "stale"
    # One of so many requests of the kind.
    ONE_OF = 10

    def __init__(self, client, kind):
        self.client, self.kind, self.before, self.lies = client, kind, {}, 0

    def carry_out(self, commands, rng):
        [verb, key, *_], *more = commands
        lies = not more and verb == {"lost": "set", "twice": "incrby", "stale": "get"}[self.kind] and rng.randrange(self.ONE_OF) == 0
        if lies and self.kind == "lost":
            self.lies += 1
            return ["OK"]
        got = self.client.carry_out(commands, rng)
        if lies and self.kind == "twice":
            self.lies += 1
            self.client.carry_out(commands, rng)
        if verb == "get":
            if lies and key in self.before:
                self.lies += 1
                got = self.before[key]
            self.before = {key: got}
        return got
