"""Machines on one: networks and disks of their own, which can be cut off, slow, and full."""

import ctypes
import os
import socket
import subprocess
import sys

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

    def __init__(self, folder, machines):
        self.processes, self.folder = [], folder
        run("ip link set lo up")
        run("ip link add bridge type bridge")
        run("ip addr add 10.0.0.1/24 dev bridge")
        run("ip link set bridge up")
        for at in range(machines):
            os.mkdir(f"{folder}/m{at}")
            run(f"mount -t tmpfs -o size={DISK} soak {folder}/m{at}")
            # It goes with this process, however that ends.
            hold = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo && exec sleep infinity"]
            held = subprocess.Popen(hold, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
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
        for at, one in enumerate(self.processes):
            one.kill()
            one.wait()
            subprocess.run(["umount", f"{self.folder}/m{at}"], stderr=subprocess.DEVNULL)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
