"""What the clients of a soak have seen, all together."""

import threading
import time
import traceback

from soak.clients import Refused, Unknown


class Load:
    def __init__(self):
        self.lock, self.over = threading.Lock(), threading.Event()
        self.writes, self.reads, self.errors = 0, 0, []
        # When a write was acknowledged last, and the longest time since a fault in which none was.
        self.last, self.gap = time.monotonic(), 0.0
        self.threads = []

    def fail(self, what):
        with self.lock:
            self.errors.append(what)
        print(what, flush=True)

    def answered(self, writes=0, reads=0):
        with self.lock:
            self.writes, self.reads = self.writes + writes, self.reads + reads
            if writes:
                now = time.monotonic()
                self.gap, self.last = max(self.gap, now - self.last), now

    def begin(self, work, *arguments):
        """A thread, which ends when the load is over."""

        def guarded():
            try:
                work(*arguments)
            except Exception:
                self.fail(f"a client has failed: {traceback.format_exc()}")

        self.threads.append(threading.Thread(target=guarded))
        self.threads[-1].start()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def until_answered(act, over):
    """None if it is over first."""
    while not over.is_set():
        try:
            return act()
        except (Refused, Unknown):
            time.sleep(0.01)
    return None
