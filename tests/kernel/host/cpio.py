"""Archives that an initramfs is made of: files of this machine, by their paths below a folder of the guest.
Gives `archive`; archives one after the other are unpacked over each other.
Depends on the standard library only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

# The "newc" format: magic, thirteen hexadecimal fields and the name, padded to 4 bytes; the content, padded.
MAGIC = b"070701"
TRAILER = "TRAILER!!!"


def archive(paths: Iterable[str], below: str) -> Iterator[bytes]:
    """The archive, piece by piece: these files and links, and every folder above them."""
    members = {Path(path) for path in paths}
    folders = {folder for path in members for folder in path.parents}
    yield _entry(below, stat.S_IFDIR | 0o755, 0)
    for path in sorted(members | folders - {Path("/")}):
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        yield _entry(below + str(path), status.st_mode, int(status.st_mtime), content)
    yield _entry(TRAILER, 0, 0)


def _entry(name: str, mode: int, modified: int, content: bytes = b"") -> bytes:
    """One member. Links are not counted, so the inode number may be the same in all."""
    encoded = os.fsencode(name) + b"\0"
    fields = (0, mode, 0, 0, 1, modified, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = MAGIC + b"".join(b"%08x" % field for field in fields) + encoded
    return _padded(header) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
