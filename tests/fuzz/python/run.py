"""Fuzzes a target in Python with atheris, which takes libFuzzer's options; or writes the target's seeds.

PYTHONPATH=tests python -m fuzz.python.run hello [-OPTION=VALUE…] [FOLDER…]
PYTHONPATH=tests python -m fuzz.python.run hello --seeds FOLDER
"""

from __future__ import annotations

import importlib
import sys
import tracemalloc
from pathlib import Path

# What is measured, by target.
INSTRUMENTED = {"hello": "verbena.transport.handshake"}


def main() -> None:
    target, *arguments = sys.argv[1:]
    if arguments[:1] == ["--seeds"]:
        write_seeds(target, Path(arguments[1]))
        return
    try:
        import atheris
    except ImportError as error:
        print(f"{target} skipped: atheris cannot be imported: {error}")
        return
    with atheris.instrument_imports(include=[INSTRUMENTED[target]]):
        check = importlib.import_module(f"fuzz.python.{target}").check
    tracemalloc.start()  # for bounded_memory()
    atheris.Setup([target, *arguments], check)
    atheris.Fuzz()


def write_seeds(target: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in importlib.import_module(f"fuzz.python.{target}_seeds").SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
