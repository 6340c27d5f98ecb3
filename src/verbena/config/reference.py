"""Generates the reference page and the annotated sample from the table of keys."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from verbena.config.keys import Key, Section
from verbena.config.load import VARIABLE
from verbena.config.model import KEYS, SECTIONS
from verbena.config.rules import RULES

SAMPLE_WIDTH = 100

PAGE_HEAD = f"""\
# Configuration

Verbena needs no configuration. Set values that differ from the defaults in a file, in the environment or by
flags: see [Configuration](../guide/configure.md). [verbena.toml](verbena.toml) lists all keys and defaults.

## Precedence

Flags override environment variables, which override the file, which overrides the defaults.

| | name of `inline_threshold` in `[network.rdma]` |
|---|---|
| file | `[network.rdma]` `inline_threshold = 512` |
| environment | `VERBENA_NETWORK_RDMA_INLINE_THRESHOLD=512`; an empty variable counts as not set |
| flag | `--network-rdma-inline-threshold 512`; a switch: `--tls-verify` or `--no-tls-verify` |

One file is read: the one that `--config` names, else `{VARIABLE}`, else the first that exists of
`./verbena.toml`, `~/.config/verbena/verbena.toml` (`XDG_CONFIG_HOME`) and `/etc/verbena/verbena.toml`.

## Values

- A size is an integer, in bytes, or a string with a unit: KB, MB, GB and TB count by 1000, KiB, MiB, GiB and
  TiB by 1024. `"1GB"` is 1,000,000,000 bytes, `"1GiB"` 1,073,741,824; `"1G"` is rejected.
- A duration is an integer; its unit is in the key's name: `_us`, `_ms`, `_s`.
- A switch is `true` or `false`; in a variable also `yes`, `no`, `on`, `off`, `1`, `0`.
- An unknown key or section, a value of the wrong type or out of range is an error, and so are two keys that
  contradict each other. All mistakes are reported at once, with their lines.
"""


def page() -> str:
    """Returns the text of docs/reference/configuration.md."""
    lines = [PAGE_HEAD]
    for name, section in _filled_sections():
        lines += [f"## [{name}]", "", f"{first_line(section)} Read by {section.READ_BY}.", ""]
        lines += ["| key | default | allowed | |", "|---|---|---|---|"]
        for key in _rows_of(name):
            meaning = _cell(key.meaning, key.more)
            lines.append(f"| `{key.name}` | `{key.default_toml}` | {_allowed(key)} | {meaning} |")
        lines.append("")
    lines += ["## Rules between keys", "", "| keys | |", "|---|---|"]
    lines += [f"| {', '.join(f'`{path}`' for path in rule.keys)} | {rule.statement} |" for rule in RULES]
    return "\n".join(lines) + "\n"


def sample() -> str:
    """Returns the text of docs/reference/verbena.toml: every key with its default, commented out."""
    lines = [
        "# verbena.toml: every key with its default. To set a key, remove its # and change the value.",
        "# `verbena config check` checks the file; `verbena config show` prints the effective values.",
    ]
    for name, section in _filled_sections():
        lines += ["", "", f"# {first_line(section)}", f"[{name}]"]
        for key in _rows_of(name):
            lines += ["", *_comment(f"{key.meaning} {key.more}"), *_comment(f"Allowed: {_value_note(key)}.")]
            lines.append(f"#{key.name} = {key.default_toml}")
    return "\n".join(lines) + "\n"


def describe(key: Key) -> str:
    """Returns the description of one key, for a terminal."""
    facts = [
        ("default", key.default_toml),
        ("allowed", _value_note(key)),
        ("variable", key.variable),
        ("flag", key.flag or "none: command lines are visible to all users"),
        ("read by", key.read_by),
    ]
    words = textwrap.wrap(f"{key.meaning} {key.more}".strip().replace("`", ""), SAMPLE_WIDTH - 2)
    return "\n".join(
        (key.path, *(f"  {line}" for line in words), *(f"  {name:<9} {fact}" for name, fact in facts))
    )


def first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def _filled_sections() -> Iterator[tuple[str, type[Section]]]:
    return ((name, section) for name, section in SECTIONS.items() if any(_rows_of(name)))


def _rows_of(section: str) -> Iterator[Key]:
    return (key for key in KEYS.values() if key.section == section)


def _value_note(key: Key) -> str:
    timed = key.unit and key.unit != "bytes"
    return f"{key.kind.allowed}, in {key.unit}" if timed else key.kind.allowed


def _allowed(key: Key) -> str:
    return _cell(_value_note(key).replace('"', "`").replace("``", '`""`'))


def _cell(*texts: str) -> str:
    return " ".join(filter(None, texts)).replace("|", "\\|")


def _comment(text: str) -> Iterable[str]:
    return (f"# {line}" for line in textwrap.wrap(text.strip(), SAMPLE_WIDTH - 2))
