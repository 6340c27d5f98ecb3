"""Writes the reference pages from the tables in the code, so that a page cannot say other than the code does.

With --check it writes nothing, and fails if a page on disk is not what would be written.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def errors_page() -> str:
    from verbena._explanations import SETUP, STATUSES, Explanation
    from verbena._telling_apart import TELLING_APART
    from verbena.errors import VerbenaError, WcStatus, error_class

    def tree(cls: type[VerbenaError], depth: int = 0) -> list[str]:
        line = f"{'  ' * depth}- `{cls.__name__}` {_first_line(cls)}"
        return [line] + [row for child in cls.__subclasses__() for row in tree(child, depth + 1)]

    def raised(row: Explanation) -> str:
        return "nothing" if row.code == WcStatus.SUCCESS.name else f"`{error_class(row.code).__name__}`"

    def section(row: Explanation) -> list[str]:
        open_row = row.filled({name: f"*{name.replace('_', ' ')}*" for name in row.fields})
        number = f" ({WcStatus[row.code].value})" if row.code in WcStatus.__members__ else ""
        return [
            f"### {row.code}{number}",
            "",
            f"{_sentence(open_row.what)} Raises {raised(row)}.",
            "",
            *(f"{place}. {cause}" for place, cause in enumerate(open_row.causes, start=1)),
            "",
            *_looks(TELLING_APART.get(row.code, ())),
            f"**Remedy:** {open_row.remedy}.",
            "",
        ]

    lines = [
        "# Errors",
        "",
        "Every error says which operation failed, with which peer, why, and what to do about it.",
        "Its class tells a program what it can do; its `code`, a heading below, tells you what happened.",
        "`verbena explain CODE` prints the same, and takes lines of logs too.",
        "Causes are in order of likelihood. Words in *italics* are filled in with the machine's own values.",
        "",
        "## Classes",
        "",
        *tree(VerbenaError),
        "",
        "## Completion statuses",
        "",
        "The numbers are those of `ibv_wc_status`. A failure, tag matching apart, leaves the queue pair in",
        "ERR: what was posted behind the failed request completes with WR_FLUSH_ERR.",
        "",
        *(line for row in STATUSES for line in section(row)),
        "## Set-up and use",
        "",
        *(line for row in SETUP for line in section(row)),
    ]
    return "\n".join(lines)


def error_codes_header() -> str:
    from verbena.errors import EXPLANATIONS

    return "\n".join(
        (
            "// Generated from src/verbena/errors by tools/reference.py. Do not edit.",
            "#pragma once",
            "",
            "#include <string_view>",
            "",
            "namespace verbena {",
            "",
            "// Every code of the error table. Index 0 means no error.",
            "inline constexpr std::string_view kErrorCodes[] = {",
            '    "",',
            *(f'    "{code}",' for code in EXPLANATIONS),
            "};",
            "",
            "}  // namespace verbena",
        )
    )


def configuration_page() -> str:
    from verbena.config import reference

    return reference.page()


def configuration_sample() -> str:
    from verbena.config import reference

    return reference.sample()


def metrics_page() -> str:
    from verbena.transport.observe.metrics import table

    return table.page()


def wire_formats_page() -> str:
    sys.path.insert(0, str(Path(__file__).parent))
    import wire_formats

    return wire_formats.page()


def registry_metrics_page() -> str:
    from verbena.registry import metrics

    return metrics.reference()


def commands_page() -> str:
    from verbena.kv import commands
    from verbena.kv.commands import reference_page as commands_page

    commands.load()
    return commands_page.page()


# A page is a row: where it lies under the root, and what writes it.
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/errors.md": errors_page,
    "src/native/util/error_codes.h": error_codes_header,
    "docs/reference/configuration.md": configuration_page,
    "docs/reference/verbena.toml": configuration_sample,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/wire-formats.md": wire_formats_page,
    "docs/reference/registry-metrics.md": registry_metrics_page,
    "docs/reference/commands.md": commands_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the reference pages from the tables in the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the pages lie (default: this tree)")
    options = parser.parse_args()

    _import_from_this_tree()
    stale = []
    for name, write in PAGES.items():
        path: Path = options.root / name
        text = write().rstrip("\n") + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{name}: out of date, run tools/reference.py" if options.check else f"{name}: written")
    return 1 if options.check and stale else 0


def _import_from_this_tree() -> None:
    # Tables come from this tree, not from the installed package; bare packages stand in for those whose
    # __init__ imports more than the tables need.
    core = _load_core()
    for name in ("verbena", "verbena.transport", "verbena.kv"):
        package = types.ModuleType(name)
        package.__dict__["__version__"] = ""
        package.__path__ = [str(ROOT.joinpath("src", *name.split(".")))]
        sys.modules[name] = package
    sys.modules["verbena"].__dict__["_native"] = core


def _load_core() -> types.ModuleType:
    """Loads the built extension module, which holds the table of native commands."""
    found = importlib.util.find_spec("verbena")
    for folder in (found and found.submodule_search_locations) or ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(folder) / f"_native{suffix}"
            spec = importlib.util.spec_from_file_location("verbena._native", path)
            if path.exists() and spec is not None and spec.loader is not None:
                core = importlib.util.module_from_spec(spec)
                sys.modules["verbena._native"] = core
                spec.loader.exec_module(core)
                return core
    sys.exit("tools/reference.py: verbena is not installed; run `make install` first")


def _looks(looks: Sequence[str]) -> list[str]:
    return ["How to tell them apart:", "", *(f"- {look}" for look in looks), ""] if looks else []


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    sys.exit(main())
