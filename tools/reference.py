"""Writes the reference pages, the Grafana dashboards and the alert rules from the tables in the code.

With --check it writes nothing, and exits with status 1 if a file on disk differs from its table.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def errors_page() -> str:
    from verbena.errors import Explanation, VerbenaError, WcStatus
    from verbena.errors.table import SETUP, STATUSES

    def tree(cls: type[VerbenaError], depth: int = 0) -> list[str]:
        also = "".join(f" Also a `{base.__name__}`." for base in cls.__bases__[1:])
        line = f"{'  ' * depth}- `{cls.__name__}` {_first_line(cls)}{also.replace('a `O', 'an `O')}"
        return [line] + [row for child in cls.__subclasses__() for row in tree(child, depth + 1)]

    def section(row: Explanation) -> list[str]:
        open_row = row.filled({name: f"*{name.replace('_', ' ')}*" for name in row.fields})
        number = f" ({WcStatus[row.code].value})" if row.code in WcStatus.__members__ else ""
        raises = f"`{row.raises.__name__}`" if row.raises else "no exception"
        return [
            f"### {row.code}{number}",
            "",
            f"{_sentence(open_row.what)} Raises {raises}.",
            "",
            *(f"{place}. {_sentence(cause)}" for place, cause in enumerate(open_row.causes, start=1)),
            "",
            *(("Checks:", "", *(f"- {_sentence(check)}" for check in row.checks), "") if row.checks else ()),
            f"**Remedy:** {_sentence(open_row.remedy)}",
            "",
        ]

    lines = [
        "# Errors",
        "",
        "Every error message names the operation that failed, the peer, the causes and the remedy.",
        "The class of the exception determines what a program can do; its `code`, a heading below, identifies"
        " the failure.",
        "`verbena explain CODE` prints the same text; it also accepts lines of logs.",
        "Causes are numbered by likelihood. Words in *italics* are replaced by values of the machine.",
        "",
        "## Classes",
        "",
        *tree(VerbenaError),
        "",
        "## Completion statuses",
        "",
        "The numbers are those of `ibv_wc_status`. Every failure except those of tag matching leaves the",
        "queue pair in ERR: requests that were posted after the failed one complete with WR_FLUSH_ERR.",
        "",
        *(line for row in STATUSES for line in section(row)),
    ]
    for heading, rows in SETUP.items():
        lines += [f"## {heading}", "", *(line for row in rows for line in section(row))]
    return "\n".join(lines)


def configuration_page() -> str:
    from verbena.config import reference

    return reference.page()


def configuration_sample() -> str:
    from verbena.config import reference

    return reference.sample()


def metrics_page() -> str:
    from verbena.kv.observe import table as store_table
    from verbena.transport.observe.metrics import table

    return table.page() + store_table.page()


def wire_formats_page() -> str:
    import wire_formats

    return wire_formats.page()


def dashboard() -> str:
    import dashboard

    return dashboard.text()


def store_dashboard() -> str:
    import store_dashboard

    return store_dashboard.text()


def store_alerts() -> str:
    import store_alerts

    return store_alerts.text()


def registry_metrics_page() -> str:
    from verbena.registry import metrics

    return metrics.reference()


def commands_page() -> str:
    from verbena.kv import commands
    from verbena.kv.commands import reference_page as commands_page

    commands.load()
    return commands_page.page()


# Each generated file, by its path under the root, and the function that makes its text.
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/errors.md": errors_page,
    "docs/reference/configuration.md": configuration_page,
    "docs/reference/verbena.toml": configuration_sample,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/wire-formats.md": wire_formats_page,
    "docs/reference/registry-metrics.md": registry_metrics_page,
    "docs/reference/commands.md": commands_page,
    "deploy/grafana/verbena.json": dashboard,
    "deploy/grafana/verbena-store.json": store_dashboard,
    "deploy/prometheus/store-alerts.yml": store_alerts,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the reference pages from the tables in the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder to write to (default: this tree)")
    options = parser.parse_args()

    sys.path.insert(0, str(Path(__file__).parent))
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


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def _sentence(text: str) -> str:
    first, _, rest = text.partition(" ")
    is_name = not first.rstrip(",:;").isalpha() or first.rstrip(":") in ("ibv", "iwarp")
    return f"{first if is_name else first[0].upper() + first[1:]} {rest}."


if __name__ == "__main__":
    sys.exit(main())
