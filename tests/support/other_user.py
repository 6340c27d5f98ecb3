"""Runs Python code as another user of this host, for tests of what other users are refused. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

NOBODY = 65534

# Everything is imported before the uid changes, since another user may not be able to read the interpreter's
# folder afterwards.
_PROLOGUE = """
import asyncio, encodings.idna, json, os, socket, sys
import verbena
from verbena import _native, errors, kv, transport
from verbena.config import Config
from verbena.integrations import files, file_messages
from verbena.kv.client.async_client import AsyncClient
from verbena.kv.client.resp_connection import RespConnection
from verbena.transport import Settings
import verbena.transport.observe.metrics.page
uid, arguments = int(sys.argv[1]), json.loads(sys.argv[2])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
def outcome(function):
    try:
        result = function()
        return result if not asyncio.iscoroutine(result) else asyncio.run(result)
    except (errors.VerbenaError, OSError) as error:
        code = error.code if isinstance(error, errors.VerbenaError) else type(error).__name__
        return {"refused": code, "detail": str(error)}
"""


def run_as(body: str, *, uid: int = NOBODY, timeout_s: float = 30, **arguments: Any) -> Any:
    """Runs `body`, which finds its `arguments` and sets `result`; returns the result. `outcome(function)`
    returns what the function returns, or the error as {"refused": code, "detail": text}."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    code = f"{_PROLOGUE}\n{body}\nprint(json.dumps(result))"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(uid), json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])
