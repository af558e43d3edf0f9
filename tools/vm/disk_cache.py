"""The write cache of a disk: what a power cut may leave of the writes that the disk has taken but not been told to keep.

QEMU's `blklogwrites` logs every write and every flush of the guest in the format of Linux's dm-log-writes
(Documentation/admin-guide/device-mapper/log-writes.rst). Writes before the last flush are kept; of each later one, every
sector is kept or lost by itself: a disk keeps no order among writes and does not promise to finish one.
"""

import pathlib
import random
import struct

SECTOR = 512
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


def read_log(log: pathlib.Path) -> list[tuple[int, int, bytes]]:
    """The log's entries (sector, flags, data), up to the first that the dying QEMU had not written."""
    data = log.read_bytes()
    entries = []
    # Behind the superblock, which is not up to date before the first flush and of no use here.
    at = SECTOR
    while at + SECTOR <= len(data):
        sector, sectors, flags, _ = struct.unpack_from("<QQQQ", data, at)
        if sectors == 0 and flags == 0:
            # Space reserved for an entry that was under way. If others lie behind it the log cannot tell where they begin.
            if any(data[at:]):
                raise ValueError(f"{log}: a hole at byte {at}")
            break
        at += SECTOR
        length = 0 if flags & (DISCARD | MARK) else sectors * SECTOR
        if at + length > len(data):
            break
        entries.append((sector, flags, data[at : at + length]))
        at += length
    return entries


def lose(before: pathlib.Path, log: pathlib.Path, rng: random.Random) -> tuple[int, int]:
    """Replays the log on the image as it was before the boot; returns how many sectors were in the cache, and lost."""
    entries = read_log(log)
    flushed = max((n for n, (_, flags, _) in enumerate(entries) if flags & FLUSH), default=-1)
    keep = rng.choice([0.0, 0.5, 0.9])
    cached = lost = 0
    with open(before, "r+b") as image:
        for n, (sector, flags, data) in enumerate(entries):
            if n <= flushed or flags & FUA:
                image.seek(sector * SECTOR)
                image.write(data)
                continue
            for at in range(0, len(data), SECTOR):
                cached += 1
                if rng.random() < keep:
                    image.seek(sector * SECTOR + at)
                    image.write(data[at : at + SECTOR])
                else:
                    lost += 1
    return cached, lost
