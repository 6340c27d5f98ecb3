"""Creates files and folders that only their owner can use, whatever the umask of the process is."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def private(path: str, flags: int) -> int:
    """An `opener` for open()."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_folder(path: Path) -> None:
    """Creates a folder and its missing parents. Raises OSError; no error if the folder exists."""
    for folder in reversed((path, *path.parents)):
        if not folder.is_dir():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
