"""Runs a real transfer on each device, in a separate process with a time limit, so that a driver that hangs
or crashes only adds a line to the report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from verbena import errors
from verbena.cli import text
from verbena.cli.checks.diagnosis import Diagnosis, error, failed, ok, warn
from verbena.cli.checks.loopback import LENGTH
from verbena.errors import EXPLANATIONS, VerbenaError
from verbena.transport.handshake.authority import Authority, local_addresses
from verbena.verbs import ProviderInfo

PROGRAM = (sys.executable, "-m", "verbena.cli.checks.loopback")
KILL_S = 2.0
KERNEL_PROVIDER = "ibv"  # check_devices() explains its absence


def check_transfers(
    providers: Sequence[ProviderInfo],
    *,
    only: str = "",
    timeout_s: float,
    program: Sequence[str] = PROGRAM,
) -> Iterator[Diagnosis]:
    """Yields one diagnosis per device of all providers, or of `only` ("provider" or "provider:device")."""
    wanted, _, device = only.partition(":")
    for provider in providers:
        if wanted and provider.name != wanted:
            continue
        if not provider.available:
            if wanted or provider.name != KERNEL_PROVIDER:
                yield _unavailable(provider, asked_for=bool(wanted))
            continue
        usable = [found.name for found in provider.devices if not found.attributes.reason]
        try:
            with _certificates(provider.name):
                for name in [device] if device else usable:
                    yield check_transfer(f"{provider.name}:{name}", timeout_s=timeout_s, program=program)
        except VerbenaError as refusal:
            yield warn(
                f"transfer {provider.name}",
                "QUIC needs certificates, and temporary ones could not be created",
                reason=refusal.detail,
                remedy="apt install openssl, or set VERBENA_QUIC_TLS_CERTIFICATE, _KEY and _AUTHORITY",
            )


@contextlib.contextmanager
def _certificates(provider: str) -> Iterator[None]:
    """QUIC needs certificates: if none are configured, creates temporary ones for the block."""
    if provider != "quic" or os.environ.get("VERBENA_QUIC_TLS_AUTHORITY"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="verbena-doctor-") as folder:
        authority = Authority.create(folder, days=2)
        issued = authority.issue("doctor", local_addresses(), days=1)
        files = {"CERTIFICATE": issued.certificate, "KEY": issued.key, "AUTHORITY": authority.certificate}
        variables = {f"VERBENA_QUIC_TLS_{name}": str(path) for name, path in files.items()}
        os.environ.update(variables)
        try:
            yield
        finally:
            for variable in variables:
                del os.environ[variable]


def check_transfer(name: str, *, timeout_s: float, program: Sequence[str] = PROGRAM) -> Diagnosis:
    """Runs a transfer between two queue pairs in a process, which is killed when the time limit has
    passed."""
    check = f"transfer {name}"
    command = [*program, name, str(timeout_s)]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as refusal:
        return _crashed(check, 1, f"{refusal.strerror}: {refusal.filename}")
    try:
        # Longer than the transfer's own timeouts, whose errors are more specific.
        out, stderr = process.communicate(timeout=timeout_s + KILL_S)
    except subprocess.TimeoutExpired:
        late = errors.completion_error(
            errors.WcStatus.RESP_TIMEOUT_ERR,
            operation="loopback transfer",
            detail=f"no result after {timeout_s:g} s",
        )
        return failed(check, late)
    finally:
        _kill(process)
    return _diagnose(check, process.returncode, out, stderr)


def _diagnose(check: str, status: int, out: str, stderr: str) -> Diagnosis:
    try:
        answer = json.loads(out)
    except ValueError:
        return _crashed(check, status, stderr)
    if "error" in answer:
        fields = {**answer["error"], "causes": tuple(answer["error"]["causes"])}
        return failed(check, VerbenaError(fields.pop("what"), **fields))
    steps = [
        f"{name} {text.duration(spent)}"
        if name == "FETCH_ADD"
        else f"{name} {text.size(LENGTH)} {text.duration(spent)}"
        for name, spent in answer["times"].items()
    ]
    return ok(check, f"{', '.join(steps)}; data verified{_format_counters(answer['counts'])}")


def _format_counters(counts: Mapping[str, int]) -> str:
    """Formats the wire's counters; leaves out those that are 0."""
    words = [f"{name.replace('_', ' ')} {count}" for name, count in counts.items() if count]
    return f"; {', '.join(words)}" if words else ""


def _crashed(check: str, status: int, stderr: str) -> Diagnosis:
    with contextlib.suppress(ValueError):
        if status < 0:
            return error(
                check,
                f"the transfer's process was ended by {signal.Signals(-status).name}",
                reason="the device's library or driver, or Verbena, has a fault",
                remedy="dmesg | tail     (look for driver errors, and report the fault)",
            )
    last = stderr.strip().rpartition("\n")[2]
    return error(
        check,
        f"the transfer's process failed: {last or f'exit status {status}'}",
        reason="Verbena could not start a second process, or has a fault",
        remedy=f"python -m {PROGRAM[-1]} {check.partition(' ')[2]} 10     (prints the whole error)",
    )


def _unavailable(provider: ProviderInfo, *, asked_for: bool) -> Diagnosis:
    verdict = error if asked_for else warn
    return verdict(
        f"transfer {provider.name}",
        "the provider cannot be used here",
        reason=provider.reason,
        remedy=EXPLANATIONS["provider_missing"].remedy,
    )


def _kill(process: subprocess.Popen[str]) -> None:
    """Kills a process that still runs. One that hangs in the kernel cannot be killed and is left behind."""
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_S)
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()
