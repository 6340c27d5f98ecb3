"""Finds and loads the configuration. Flags take precedence over environment, file and defaults, in this
order."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from verbena.config import document
from verbena.config.kinds import Boolean, Secret, SecretText
from verbena.config.model import KEYS, Config, Source, require_key
from verbena.config.values import ValueCollector
from verbena.errors import ConfigurationProblem, configuration_error, setup_error

VARIABLE = "VERBENA_CONFIG"
MAX_FILE_BYTES = 1 << 18


def places(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Returns the default paths of the configuration file. The first that exists is read."""
    environment = os.environ if environment is None else environment
    home = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME') or '~'}/.config"
    folders = (".", f"{os.path.expanduser(home)}/verbena", "/etc/verbena")
    return [Path(folder, "verbena.toml") for folder in folders]


def load(
    file: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Config:
    """Loads the configuration from `file` (default: VERBENA_CONFIG, or the first of places() that exists).
    Variables of the environment replace its values, `flags` (text by full key) replace both.
    Raises ConfigurationError with all problems."""
    environment = os.environ if environment is None else environment
    path = find(file, environment)
    gathered = ValueCollector()
    if path is not None:
        gathered.add_document(document.read(_contents(path), str(path)), folder=path.parent)
    gathered.add_environment(environment)
    for key, text in (flags or {}).items():
        flag = require_key(key).flag or key
        off = text == "false" and isinstance(KEYS[key].kind, Boolean)
        gathered.add_text(key, text, Source("flag", flag.replace("--", "--no-", 1) if off else flag))
    return _finished(gathered, path)


def loads(text: str | bytes, *, name: str = "<text>") -> Config:
    """Loads the configuration from a text, without file and environment. Raises ConfigurationError."""
    gathered = ValueCollector()
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    gathered.add_document(document.read(data, name))
    return _finished(gathered, None)


def override(config: Config, values: Mapping[str, Any]) -> Config:
    """Returns a copy with other `values` (by full key), checked like any source. Raises ConfigurationError,
    or KeyError for an unknown key."""
    now = {path: config[path] for path in KEYS}
    gathered = ValueCollector(
        {path: value for path, value in now.items() if path in config.sources or value != KEYS[path].default},
        dict(config.sources),
    )
    for path, value in values.items():
        require_key(path)
        gathered.add_value(path, value)
    return _finished(gathered, config.file)


def find(file: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path | None:
    """Returns the file to read; None if there is none. Raises ConfigurationError if a place cannot be
    checked, since an existing file must not be skipped."""
    if named := file or environment.get(VARIABLE):
        return Path(named)
    for path in places(environment):
        try:
            if stat.S_ISREG(path.stat().st_mode):
                return path
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
    return None


def read_secret(config: Config, path: str = "session.secret") -> Secret:
    """Returns the value of a secret key, or the content of the file that the key `<path>_file` names; empty
    if neither key is set. Raises ConfigurationError if the file cannot be read or is readable by all users,
    or if the secret is too short."""
    name = f"{path}_file"
    if not config[name]:
        return cast(Secret, config[path])
    file, kind = Path(config[name]), cast(SecretText, KEYS[path].kind)
    contents = _contents(file)
    reason = ""
    if file.stat().st_mode & stat.S_IROTH:
        reason = f"readable by all users: run chmod 600 {file}"
    elif len(contents.strip()) < kind.shortest:
        reason = f"it must have at least {kind.shortest} characters"
    if reason:
        message = f"{name}: {file}: {reason}"
        raise configuration_error([ConfigurationProblem(message, name, str(config.source_of(name)))])
    return Secret(contents.decode("utf-8", "surrogateescape").rstrip())


def _finished(gathered: ValueCollector, file: Path | None) -> Config:
    config = gathered.check_rules()
    if gathered.problems:
        order = sorted(gathered.problems, key=lambda problem: problem.line or MAX_FILE_BYTES)
        raise configuration_error(order)
    return replace(config, file=file, warnings=tuple(gathered.warnings))


def _contents(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            contents = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if len(contents) > MAX_FILE_BYTES:
        detail = f"{path} is longer than {MAX_FILE_BYTES} bytes"
        raise setup_error("configuration_file", operation="", detail=detail)
    return contents


def _unreadable(path: Path, error: OSError | ValueError) -> Exception:
    number = error.errno if isinstance(error, OSError) else None
    return setup_error("configuration_file", operation="", detail=str(path), errno=number)
