"""CONFIG REWRITE: writes changed parameters into the configuration file; the rest of the file is kept."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile

from verbena.config import Secret, load, loads, read_secret
from verbena.config.model import KEYS
from verbena.errors import ConfigurationError

SECTION = "kv"


def rewrite(path: str, values: dict[str, tuple[str, bool]]) -> None:
    """`values`: full key → (value as text, whether it is the default). A default is written only where the
    file has the key already. OSError or ValueError, and the file is as before, if it cannot be done."""
    with open(path, encoding="utf-8") as source:
        before = source.read()
    config = load(path)
    kept = {
        key
        for key, (value, _) in values.items()
        if KEYS[key].kind.secret and config[f"{key}_file"] and read_secret(config, key).reveal() == value
    }
    after = rewritten(before, {key: value for key, value in values.items() if key not in kept})
    try:
        loads(after, name=path)
    except ConfigurationError as error:
        raise ValueError(f"{path} would not be valid: {error}") from error
    if after != before:
        _replace(path, after)


def rewritten(text: str, values: dict[str, tuple[str, bool]]) -> str:
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if re.match(r"\s*\[\s*kv\s*\]", line)), None)
    if start is None:
        lines += ["", f"[{SECTION}]"] if lines else [f"[{SECTION}]"]
        start = len(lines) - 1
    end = next((i for i in range(start + 1, len(lines)) if re.match(r"\s*\[", lines[i])), len(lines))
    added = []
    for path, (value, is_default) in values.items():
        name = path.removeprefix(f"{SECTION}.")
        line = f"{name} = {_toml(path, value)}"
        # A secret that was changed at run time replaces its file.
        names = f"{name}(_file)?" if KEYS[path].kind.secret else name
        at = next((i for i in range(start + 1, end) if re.match(rf"\s*{names}\s*=", lines[i])), None)
        if at is not None:
            lines[at] = line
        elif not is_default:
            added.append(line)
    return "\n".join([*lines[: start + 1], *added, *lines[start + 1 :]]) + "\n"


def _toml(path: str, text: str) -> str:
    kind = KEYS[path].kind
    value = kind.from_text(text)
    return json.dumps(value.reveal()) if isinstance(value, Secret) else kind.to_toml(value)


def _replace(path: str, text: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=folder, prefix=".verbena-", delete=False
    ) as out:
        try:
            out.write(text)
            out.flush()
            os.fchmod(out.fileno(), os.stat(path).st_mode & 0o7777)
            os.fsync(out.fileno())
            os.replace(out.name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(out.name)
            raise
