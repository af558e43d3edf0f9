"""The processes of a soak, an etcd and three machines, and what goes wrong with them."""

import os
import signal
import subprocess
import threading
import time

from soak.hosts import free_ports

MACHINES = 3


class Group:
    """What is served is said by a subclass: `words` of a machine's command, and `leader`."""

    def __init__(self, cairn, folder, hosts, etcd_options=()):
        self.cairn, self.folder, self.hosts = cairn, folder, hosts
        ports = free_ports(2 + 2 * MACHINES)
        etcd = "10.0.0.1" if hosts else "127.0.0.1"
        self.etcd_url, peer = f"http://{etcd}:{ports[0]}", f"http://{etcd}:{ports[1]}"
        addresses = [f"10.0.0.{10 + at}" if hosts else "127.0.0.1" for at in range(MACHINES)]
        # Where clients, and other machines, reach each of them.
        self.clients = list(zip(addresses, ports[2 : 2 + MACHINES]))
        self.copies = list(zip(addresses, ports[2 + MACHINES :]))
        with open(os.open(f"{folder}/secret", os.O_CREAT | os.O_WRONLY, 0o600), "wb") as secret:
            secret.write(os.urandom(32))
        self.etcd_words = ["etcd", "--data-dir", f"{folder}/etcd", "--listen-client-urls", self.etcd_url, "--advertise-client-urls", self.etcd_url]
        self.etcd_words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", *etcd_options]
        self.start_etcd()
        self.running, self.began = [None] * MACHINES, time.monotonic()

    def start_etcd(self):
        with open(f"{self.folder}/etcd.out", "ab") as log:
            self.etcd = subprocess.Popen(self.etcd_words, stdout=log, stderr=log)

    def words(self, at):
        raise NotImplementedError

    def leader(self):
        raise NotImplementedError

    def program(self, at):
        """What a machine is started with."""
        return self.cairn

    def path(self, at, name):
        """Of a file of a machine, in the folder."""
        return f"m{at}/{name}" if self.hosts else f"{at}{name}"

    def start(self, at):
        inside = self.hosts.inside(at) if self.hosts else ""
        words = f"{inside}{self.program(at)} {self.words(at)}"
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

    def fault(self, what, rng, load):
        """One fault, and what ends it."""
        print(f"{time.monotonic() - self.began:7.2f} {what}", flush=True)
        leads = self.leader()
        at = leads if leads is not None and what.endswith("leader") else rng.randrange(MACHINES)
        if what == "kill etcd":
            self.etcd.kill()
            self.etcd.wait()
            time.sleep(rng.choice([0, 3, 8]))
            self.start_etcd()
        elif what == "pause etcd":
            self.etcd.send_signal(signal.SIGSTOP)
            time.sleep(rng.choice([0.5, 2.5, 6]))
            self.etcd.send_signal(signal.SIGCONT)
        elif what.startswith("kill all"):
            for one in range(MACHINES):
                self.signal(one, signal.SIGKILL)
            time.sleep(rng.random())
            for one in rng.sample(range(MACHINES), MACHINES):
                self.start(one)
                time.sleep(rng.random() / 4)
        elif what.startswith("kill"):
            self.signal(at, signal.SIGKILL)
            time.sleep(rng.choice([0.2, 3, 10]))
            self.start(at)
        elif what.startswith("pause"):
            self.signal(at, signal.SIGSTOP)
            time.sleep(rng.choice([0.5, 2.5, 6]))
            self.signal(at, signal.SIGCONT)
        elif what.startswith("stop"):
            self.signal(at, signal.SIGTERM)
            try:
                code = self.running[at].wait(timeout=60)
            except subprocess.TimeoutExpired:
                return load.fail(f"machine {at} has not stopped within a minute")
            if code != 0:
                load.fail(f"machine {at} stopped with code {code}")
            self.start(at)
        else:
            act = {"cut": self.hosts.cut, "slow": self.hosts.slow, "fill": self.hosts.fill}[what.split()[0]]
            act(at, True)
            time.sleep(rng.choice([0.5, 3, 8]))
            act(at, False)

    def watch(self, load, over):
        """A machine that ends by itself is a defect."""
        while not over.wait(0.5):
            for at, one in enumerate(self.running):
                code = one.poll() if one else None
                if code is not None and code != -signal.SIGKILL and self.running[at] is one and code != 0:
                    load.fail(f"machine {at} ended by itself with code {code}")
                    over.set()
                    return

    def end(self):
        for one in [*self.running, self.etcd]:
            if one:
                one.send_signal(signal.SIGCONT)
                one.kill()
                one.wait()
        if self.hosts:
            self.hosts.end()
