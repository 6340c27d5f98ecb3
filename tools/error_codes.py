"""Writes src/native/util/error_codes.h from the error table in src/verbena/errors. Needs no built extension.

With --check it writes nothing, and exits with status 1 if the header on disk differs from the table.
"""

from __future__ import annotations

import argparse
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = Path("src/native/util/error_codes.h")
TEXT = """\
// Generated from src/verbena/errors by tools/error_codes.py. Do not edit.
#pragma once

#include <string_view>

namespace verbena {

// Every code of the error table, sorted. Index 0 means no error.
inline constexpr std::string_view kErrorCodes[] = {
    "",
%s
};

}  // namespace verbena
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the native list of error codes from the error table.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder to write to (default: this tree)")
    options = parser.parse_args()

    path: Path = options.root / HEADER
    text = header()
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print(f"{HEADER}: out of date, run tools/error_codes.py")
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"{HEADER}: written")
    return 0


def header() -> str:
    # Empty packages replace verbena and verbena.errors, whose __init__ imports the extension.
    for name in ("verbena", "verbena.errors"):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(ROOT / "src" / name.replace(".", "/"))]
    from verbena.errors.table import EXPLANATIONS

    return TEXT % "\n".join(f'    "{code}",' for code in sorted(EXPLANATIONS))


if __name__ == "__main__":
    sys.exit(main())
