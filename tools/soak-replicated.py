#!/usr/bin/env python3
"""Three machines of `cairn serve --etcd` under load: killed, paused, restarted, one or all, for some minutes. As root each has a network and a disk of its own, and is cut off, slowed
down to 300 KB/s, and has no room on its disk, too.

Each writer has a register of its own, into which it writes 1, 2, 3, ...; everybody reads all of them. For such registers a history is linearizable exactly if each read gives at least
what was acknowledged, or read by anybody, before it began, and at most what was sent before it ended. A write without an answer, or in doubt, may be there or not: the writer reads
before it goes on. Everybody asks whoever answers; a reader on each machine asks that one alone, also while it is cut off from all others. At the end every register is read.

    tools/soak-replicated.py --cairn target/release/cairn --minutes 10

Exit code 0 if nothing was lost and nothing stale was read; prints how long nobody answered at each fault.
"""

import argparse
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

MACHINES = 3
# Of each machine's disk; of its line when it is slow, in kilobits.
DISK, LINE = "96m", 2400


def isolate():
    """Begins anew in a network of its own, and with mounts of its own, which end with the last process in them; False if that is not to be had."""
    if os.environ.get("SOAK_ISOLATED"):
        return True
    if subprocess.run(["unshare", "--net", "--mount", "ip", "link", "add", "probe0", "type", "bridge"], stderr=subprocess.DEVNULL).returncode != 0:
        return False
    os.environ["SOAK_ISOLATED"] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])


def run(words):
    subprocess.run(words.split(), check=True)


class Hosts:
    """A network namespace for each machine, with an address behind a bridge, and a disk."""

    def __init__(self, folder):
        self.processes, self.folder = [], folder
        run("ip link set lo up")
        run("ip link add bridge type bridge")
        run("ip addr add 10.0.0.1/24 dev bridge")
        run("ip link set bridge up")
        for at in range(MACHINES):
            os.mkdir(f"{folder}/m{at}")
            run(f"mount -t tmpfs -o size={DISK} soak {folder}/m{at}")
            held = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo && exec sleep infinity"], stdout=subprocess.PIPE)
            held.stdout.readline()
            self.processes.append(held)
            run(f"ip link add v{at} type veth peer name e{at}")
            run(f"ip link set e{at} netns {held.pid}")
            run(f"ip link set v{at} master bridge up")
            for words in "ip link set lo up", f"ip addr add 10.0.0.{10 + at}/24 dev e{at}", f"ip link set e{at} up":
                run(self.inside(at) + words)

    def inside(self, at):
        return f"nsenter -t {self.processes[at].pid} -n "

    def enter(self, at):
        """This thread is on that machine from now on."""
        with open(f"/proc/{self.processes[at].pid}/ns/net") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def cut(self, at, is_cut):
        run(f"ip link set v{at} {'down' if is_cut else 'up'}")

    def slow(self, at, is_slow):
        how = f"add dev {{}} root tbf rate {LINE}kbit burst 16kb latency 400ms" if is_slow else "del dev {} root"
        run("tc qdisc " + how.format(f"v{at}"))
        run(self.inside(at) + "tc qdisc " + how.format(f"e{at}"))

    def fill(self, at, is_full):
        path = f"{self.folder}/m{at}/fill"
        if not is_full:
            return os.unlink(path)
        with open(path, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def end(self):
        for one in self.processes:
            one.kill()
            one.wait()
        for at in range(MACHINES):
            subprocess.run(["umount", f"{self.folder}/m{at}"], stderr=subprocess.DEVNULL)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Group:
    """Processes: an etcd, and the machines."""

    def __init__(self, cairn, folder, log_size, hosts):
        self.cairn, self.folder, self.log_size, self.hosts = cairn, folder, log_size, hosts
        ports = free_ports(2 + 2 * MACHINES)
        etcd = "10.0.0.1" if hosts else "127.0.0.1"
        self.etcd_url, peer = f"http://{etcd}:{ports[0]}", f"http://{etcd}:{ports[1]}"
        addresses = [f"10.0.0.{10 + at}" if hosts else "127.0.0.1" for at in range(MACHINES)]
        self.redis = list(zip(addresses, ports[2 : 2 + MACHINES]))
        self.copies = list(zip(addresses, ports[2 + MACHINES :]))
        with open(os.open(f"{folder}/secret", os.O_CREAT | os.O_WRONLY, 0o600), "wb") as secret:
            secret.write(os.urandom(32))
        log = open(f"{folder}/etcd.out", "ab")
        self.etcd = subprocess.Popen(
            ["etcd", "--data-dir", f"{folder}/etcd", "--listen-client-urls", self.etcd_url]
            + ["--advertise-client-urls", self.etcd_url, "--listen-peer-urls", peer]
            + ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
            stdout=log,
            stderr=log,
        )
        self.running, self.began = [None] * MACHINES, time.monotonic()

    def start(self, at):
        files = f"m{at}/" if self.hosts else f"{at}"
        words = f"{self.hosts.inside(at) if self.hosts else ''}{self.cairn} serve {files}store --log {files}log --etcd {self.etcd_url} --prefix /cairn/soak --name m{at}"
        words += " --listen {}:{} --redis {}:{}".format(*self.copies[at], *self.redis[at])
        words += f" --secret-file secret --log-size {self.log_size} --domain emulated --lease 2{' --open' if self.hosts else ''}"
        process = subprocess.Popen(words.split(), cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.keep, args=(at, process.stdout), daemon=True).start()
        self.running[at] = process

    def keep(self, at, said):
        """What a machine says, and when."""
        with open(f"{self.folder}/out", "a") as out:
            for line in said:
                out.write(f"{time.monotonic() - self.began:7.2f} m{at} {line}")
                out.flush()

    def signal(self, at, what):
        self.running[at].send_signal(what)
        if what == signal.SIGKILL:
            self.running[at].wait()
            self.running[at] = None

    def end(self):
        for one in [*self.running, self.etcd]:
            if one:
                one.send_signal(signal.SIGCONT)
                one.kill()
                one.wait()
        if self.hosts:
            self.hosts.end()


class Refused(Exception):
    """The answer is an error: nothing was done, unless it says that it is in doubt."""

    def __init__(self, text):
        super().__init__(text)
        self.in_doubt = "in doubt" in text


class Client:
    """Asks one machine after the other until one answers."""

    def __init__(self, ports):
        self.ports, self.at, self.socket, self.file = ports, 0, None, None

    def ask(self, *words):
        """The answer; ConnectionError if it is not known whether it was done."""
        if self.socket is None:
            try:
                self.socket = socket.create_connection(self.ports[self.at], timeout=1.0)
                self.socket.settimeout(1.5)
                self.file = self.socket.makefile("rb")
            except OSError as error:
                self.leave()
                raise Refused(str(error)) from error
        try:
            request = b"*%d\r\n" % len(words)
            for word in words:
                word = str(word).encode()
                request += b"$%d\r\n%s\r\n" % (len(word), word)
            self.socket.sendall(request)
            line = self.file.readline()
            if not line.endswith(b"\r\n"):
                raise OSError("closed")
            if line[:1] == b"$" and line != b"$-1\r\n":
                return self.file.read(int(line[1:]) + 2)[:-2].decode()
        except OSError as error:
            self.leave()
            raise ConnectionError(str(error)) from error
        if line[:1] == b"-":
            self.leave()
            raise Refused(line[1:-2].decode())
        return None if line == b"$-1\r\n" else line[1:-2].decode()

    def leave(self):
        if self.socket:
            self.socket.close()
        self.socket, self.at = None, (self.at + 1) % len(self.ports)


class History:
    """What is known of the registers."""

    def __init__(self, writers):
        self.lock = threading.Lock()
        self.least, self.most = [0] * writers, [0] * writers
        self.acknowledged, self.reads, self.errors = 0, 0, []
        self.last, self.gap = time.monotonic(), 0.0

    def fail(self, what):
        with self.lock:
            self.errors.append(what)
        print(what, flush=True)

    def answered(self):
        now = time.monotonic()
        self.gap, self.last = max(self.gap, now - self.last), now

    def read(self, client, of):
        with self.lock:
            least = self.least[of]
        value = int(client.ask("GET", f"r{of}") or 0)
        with self.lock:
            most = self.most[of]
            self.reads += 1
            self.answered()
            if least <= value:
                self.least[of] = max(self.least[of], value)
        if not least <= value <= most:
            self.fail(f"r{of} is {value}, and must be {least} to {most}")
        return value


def until_answered(act, over):
    while not over.is_set():
        try:
            return act()
        except (Refused, ConnectionError):
            time.sleep(0.01)
    return None


def write(history, ports, own, over, size):
    client, value = Client(ports), 0
    while not over.is_set():
        value += 1
        with history.lock:
            history.most[own] = value
        try:
            if client.ask("MULTI") != "OK":
                raise Refused("no transaction")
            client.ask("SET", f"r{own}", value)
            client.ask("SET", f"x{own}:{value % 50}", "x" * size)
            if not (client.ask("EXEC") or "").startswith("2"):
                raise ConnectionError("no answer")
            client.file.readline(), client.file.readline()
            with history.lock:
                history.least[own] = max(history.least[own], value)
                history.acknowledged += 1
                history.answered()
        except (Refused, ConnectionError):
            client.leave()
            time.sleep(0.01)
            # It may be there, now or a moment later only if it is there now: what was in doubt is decided by who leads.
            found = until_answered(lambda: history.read(client, own), over)
            if found is not None and found not in (value - 1, value):
                history.fail(f"r{own} is {found} after {value - 1} was acknowledged and {value} was sent")
            if found is not None and found < value:
                value = found


def read(history, ports, over, enter=None):
    if enter:
        enter()
    client, rng = Client(ports), random.Random(7)
    while not over.is_set():
        try:
            history.read(client, rng.randrange(len(history.least)))
        except (Refused, ConnectionError):
            time.sleep(0.01)


def leader(group):
    for at, port in enumerate(group.redis):
        try:
            if Client([port]).ask("ROLE").startswith("3"):
                return at
        except (Refused, ConnectionError):
            pass
    return None


def fault(group, rng, what, history):
    """One fault, and what ends it."""
    print(f"{time.monotonic() - group.began:7.2f} {what}", flush=True)
    leads = leader(group)
    at = leads if leads is not None and what.endswith("leader") else rng.randrange(MACHINES)
    if what.startswith("kill all"):
        for one in range(MACHINES):
            group.signal(one, signal.SIGKILL)
        time.sleep(rng.random())
        for one in rng.sample(range(MACHINES), MACHINES):
            group.start(one)
            time.sleep(rng.random() / 4)
    elif what.startswith("kill"):
        group.signal(at, signal.SIGKILL)
        time.sleep(rng.choice([0.2, 3, 10]))
        group.start(at)
    elif what.startswith("pause"):
        group.signal(at, signal.SIGSTOP)
        time.sleep(rng.choice([0.5, 2.5, 6]))
        group.signal(at, signal.SIGCONT)
    elif what.startswith("stop"):
        group.signal(at, signal.SIGTERM)
        if group.running[at].wait(timeout=60) != 0:
            history.fail(f"machine {at} did not stop well")
        group.start(at)
    else:
        act = {"cut": group.hosts.cut, "slow": group.hosts.slow, "fill": group.hosts.fill}[what.split()[0]]
        act(at, True)
        time.sleep(rng.choice([0.5, 3, 8]))
        act(at, False)


def watch(group, history, over):
    """A machine that ends by itself is a defect."""
    while not over.wait(0.5):
        for at, one in enumerate(group.running):
            code = one.poll() if one else None
            if code is not None and code != -signal.SIGKILL and group.running[at] is one and code != 0:
                history.fail(f"machine {at} ended by itself with code {code}")
                over.set()
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cairn", required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--log-size", default="1M")
    parser.add_argument("--value", type=int, default=1000, help="bytes that each write has beside: with a small log, machines that were away need a seed")
    parser.add_argument("--only", default="", help="these faults alone, as in: cut,slow,fill leader")
    parser.add_argument("--keep", action="store_true", help="leave the files there")
    asked = parser.parse_args()
    is_isolated = isolate()
    seed = asked.seed if asked.seed is not None else random.randrange(1 << 32)
    rng = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="soak-replicated-")
    print(f"seed {seed}, files in {folder}", flush=True)
    hosts = Hosts(folder) if is_isolated else None
    if not hosts:
        print("no networks of their own are to be had (root, and the command ip): no machine is cut off, slow, or full", flush=True)
    group = Group(os.path.abspath(asked.cairn), folder, asked.log_size, hosts)
    history, over = History(asked.writers), threading.Event()
    try:
        for at in range(MACHINES):
            group.start(at)
        threads = [threading.Thread(target=write, args=(history, group.redis, own, over, asked.value)) for own in range(asked.writers)]
        threads += [threading.Thread(target=read, args=(history, group.redis, over)) for _ in range(2)]
        if hosts:
            for at in range(MACHINES):
                enter = lambda at=at: hosts.enter(at)
                threads += [threading.Thread(target=read, args=(history, [group.redis[at]], over, enter))]
        threads += [threading.Thread(target=watch, args=(group, history, over))]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60 * asked.minutes
        kinds = ["kill leader", "kill leader", "kill one", "pause leader", "pause leader", "pause one", "kill all", "stop leader", "stop one"]
        if hosts:
            kinds += ["cut leader", "cut leader", "cut one", "slow leader", "slow one", "fill leader", "fill one"]
        kinds = [kind for kind in kinds if any(kind.startswith(one) for one in asked.only.split(","))]
        gaps = {}
        first = Client(group.redis)
        until_answered(lambda: history.read(first, 0), over)
        while time.monotonic() < end and not history.errors:
            with history.lock:
                history.gap, before = 0.0, history.acknowledged
            what = rng.choice(kinds)
            fault(group, rng, what, history)
            # All is well again before the next one: writes go on.
            deadline = time.monotonic() + 60
            while history.acknowledged < before + 100 or leader(group) is None:
                if time.monotonic() > deadline:
                    history.fail(f"nobody answers for a minute after: {what}")
                    break
                time.sleep(0.05)
            time.sleep(rng.random() * 3)
            gaps.setdefault(what, []).append(history.gap)
            print(f"{what:13} nobody answered for {history.gap:5.2f} s; {history.acknowledged} writes, {history.reads} reads", flush=True)
        over.set()
        for thread in threads:
            thread.join()
        client, last = Client(group.redis), threading.Event()
        timer = threading.Timer(60, last.set)
        timer.start()
        for own in range(asked.writers):
            if until_answered(lambda: history.read(client, own), last) is None:
                history.fail(f"r{own} cannot be read at the end")
        timer.cancel()
        for what, found in sorted(gaps.items()):
            found.sort()
            print(f"{what:13} {len(found):3} times; nobody answered for {found[len(found) // 2]:.2f} s (median), {found[-1]:.2f} s (longest)")
        print(f"{history.acknowledged} writes acknowledged, {history.reads} reads, {len(history.errors)} errors")
    finally:
        over.set()
        group.end()
        if history.errors or asked.keep:
            print(f"files are left in {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if history.errors else 0


if __name__ == "__main__":
    sys.exit(main())
