#!/usr/bin/env python3
"""What one copy of three costs that is stopped, slow or hangs: tools/slow-copy.py CAIRN [SECONDS].

Three processes `cairn log-replica` on this machine, in memory, the third behind a gate; `cairn log append` makes each record of 100 bytes
durable on two of them before the next. Printed: appends a second while all is well, and then in each second of trouble, and the ratio."""

import os, signal, socket, statistics, subprocess, sys, tempfile, threading, time

CAIRN, SECONDS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
RATE = 300_000


class Gate:
    """A way to a copy: open, or 300 KB a second, or shut."""

    def __init__(self, to):
        self.mode, self.to = "open", to
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(self.to)
            for one in near, far:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for a, b in (near, far), (far, near):
                threading.Thread(target=self.go, args=(a, b), daemon=True).start()

    def go(self, a, b):
        try:
            while True:
                while self.mode == "hung":
                    time.sleep(0.01)
                some = a.recv(4096 if self.mode == "slow" else 65536)
                if not some:
                    break
                if self.mode == "slow":
                    time.sleep(len(some) / RATE)
                b.sendall(some)
        except OSError:
            pass
        for one in a, b:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def measure(trouble):
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cairn-slow-") as there:
        secret = os.path.join(there, "secret")
        with open(secret, "wb") as file:
            file.write(os.urandom(32))
        os.chmod(secret, 0o600)
        quiet, copies, addresses = {"stderr": subprocess.DEVNULL}, [], []
        for n in range(3):
            path = os.path.join(there, "copy%d" % n)
            args = [CAIRN, "log-replica", path, "--listen", "127.0.0.1:0", "--secret-file", secret]
            copies.append(subprocess.Popen(args, stdout=subprocess.PIPE, **quiet))
            addresses.append(copies[-1].stdout.readline().decode().split()[-1])
        host, port = addresses[2].rsplit(":", 1)
        gate = Gate((host, int(port)))
        named = sum((["--replica", a] for a in (addresses[0], addresses[1], gate.address)), ["--secret-file", secret])
        subprocess.run([CAIRN, "log", "create", *named, "--write-quorum", "2", "--bytes", "512M"], check=True, stdout=subprocess.DEVNULL, **quiet)
        append = subprocess.Popen([CAIRN, "log", "append", "--print-lsn", *named], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **quiet)
        count, over = [0], []

        def feed():
            try:
                while not over:
                    append.stdin.write((b"x" * 100 + b"\n") * 50)
            except OSError:
                pass

        def read():
            for _ in append.stdout:
                count[0] += 1

        for what in feed, read:
            threading.Thread(target=what, daemon=True).start()

        def second():
            before, since = count[0], time.monotonic()
            time.sleep(1)
            return (count[0] - before) / (time.monotonic() - since)

        time.sleep(2)
        well = [second() for _ in range(SECONDS)]
        if trouble == "stopped":
            copies[2].send_signal(signal.SIGSTOP)
        else:
            gate.mode = trouble
        ill = [second() for _ in range(SECONDS)]
        over.append(True)
        append.kill()
        for copy in copies:
            copy.kill()
        rate = statistics.median(well)
        print("%-8s well %.0f/s (%.0f to %.0f); then %s: %.2f" % (
            trouble, rate, min(well), max(well), " ".join("%.0f" % n for n in ill), statistics.mean(ill) / rate))


for trouble in "open", "stopped", "slow", "hung":
    measure(trouble)
