#!/usr/bin/env python3
"""mkpmem.py IMAGE MEGABYTES: the backing file of an emulated NVDIMM that Linux shows as an fsdax namespace with ext4.

Written without booting a guest. A raw namespace without labels has no DAX; what gives it DAX is the kernel's
`struct nd_pfn_sb` (drivers/nvdimm/pfn.h) at byte 4096, as `ndctl create-namespace -m fsdax -M mem` writes it; `mem` keeps the
page structures in the guest's memory. The file system starts at byte 2 MiB."""

import os
import struct
import subprocess
import sys
import uuid

DATA_OFFSET = 2 << 20
PAGE = 4096


def info_block(size: int) -> bytes:
    block = bytearray(PAGE)
    block[0:16] = b"NVDIMM_PFN_INFO\0"
    block[16:32] = uuid.uuid4().bytes
    # flags, version 1.4, data offset, pages, mode 1 (page structures in memory), start pad, end trunc, alignment,
    # page size, sizeof(struct page)
    struct.pack_into(
        "<IHHQQIIIIIH", block, 0x30, 0, 1, 4, DATA_OFFSET, (size - DATA_OFFSET) // PAGE, 1, 0, 0, DATA_OFFSET, PAGE, 64
    )
    # Fletcher-64 over the block with its checksum as zero.
    low = high = 0
    for (word,) in struct.iter_unpack("<I", bytes(block)):
        low = (low + word) & 0xFFFFFFFF
        high = (high + low) & 0xFFFFFFFF
    struct.pack_into("<Q", block, PAGE - 8, high << 32 | low)
    return bytes(block)


def main() -> None:
    image, size = sys.argv[1], int(sys.argv[2]) << 20
    with open(image, "wb") as file:
        file.truncate(size)
        file.seek(PAGE)
        file.write(info_block(size))
    options = f"offset={DATA_OFFSET},lazy_itable_init=0,lazy_journal_init=0"
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    blocks = f"{(size - DATA_OFFSET) // 1024}k"
    command = ["mkfs.ext4", "-q", "-F", "-b", str(PAGE), "-E", options, image, blocks]
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    main()
