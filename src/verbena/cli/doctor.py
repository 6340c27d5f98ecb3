"""`verbena doctor`: checks this machine and prints the command that fixes each problem."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator

from verbena import errors, verbs
from verbena.cli import text
from verbena.cli.checks import adapters, devices, kernel, limits, network, peer, settings, transfer
from verbena.cli.checks.diagnosis import Diagnosis, Roots, Verdict
from verbena.cli.checks.script import script
from verbena.config import Config
from verbena.config.flags import add_flags, load_with_flags

EPILOG = """\
examples:
  verbena doctor                     check kernel, devices and limits; run a transfer on every device
  verbena doctor --provider shm      run transfers on the devices of shm only
  verbena doctor --peer db1:7471     also test the path to another node, wire by wire
  verbena doctor --fix > fix.sh      print the fixes as a script; read it before you run it
  verbena doctor --json              a list of {check, verdict, finding, reason, remedy}

OK: works. WARN: works, but could be better. ERROR: does not work.
exit status: 0 without an ERROR, else 1
"""

COLOURS = {Verdict.OK: "32", Verdict.WARN: "33", Verdict.ERROR: "31"}
INDENT = 7  # width of a verdict plus the gap


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "doctor",
        help="check this machine and print the fix for what fails",
        description="Checks this machine for RDMA and runs a real transfer on every device.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--provider", default="", help="transfer on this provider or provider:device only")
    parser.add_argument(
        "--timeout",
        type=text.parse_seconds,
        default=20.0,
        metavar="SECONDS",
        help="time limit for the transfer on one device (default: 20)",
    )
    parser.add_argument(
        "--peer",
        default="",
        metavar="HOST:PORT",
        help="also test the path to the node that listens there",
    )
    parser.add_argument("--fix", action="store_true", help="print the fixes as a script; nothing is run")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_flags(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    providers = verbs.providers()
    _require_known(options.provider, providers)
    found = []
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    as_lines = not options.json and not options.fix
    for diagnosis in _examine(providers, Roots(), options):
        found.append(diagnosis)
        if as_lines:
            print("\n".join(_lines(diagnosis, colour=colour)), flush=True)
    counts = Counter(diagnosis.verdict for diagnosis in found)
    if options.fix:
        print(script(found))
    elif options.json:
        print(json.dumps([diagnosis.as_json() for diagnosis in found], indent=2))
    else:
        print(f"\n{', '.join(f'{counts[verdict]} {verdict.value}' for verdict in Verdict)}")
    return 1 if counts[Verdict.ERROR] else 0


def _examine(
    providers: list[verbs.ProviderInfo], roots: Roots, options: argparse.Namespace
) -> Iterator[Diagnosis]:
    """Yields the diagnoses of all checks, each as soon as it is known."""
    yield from kernel.check_modules(roots)
    yield from adapters.check_adapters(roots)
    yield from devices.check_nodes(roots)
    for provider in providers:
        if provider.name == transfer.KERNEL_PROVIDER:
            yield devices.check_devices(provider, roots)
            for device in provider.devices:
                yield from devices.check_device(device.attributes, roots)
                yield from network.check_network(device.attributes, roots)
    yield kernel.check_software_device(roots)
    yield from limits.check_limits(roots)
    config = _config(options)
    yield from settings.check_settings(config, providers, roots)
    usable = config if isinstance(config, Config) else Config()
    yield network.check_firewall(usable.session.listen_port)
    yield from transfer.check_transfers(providers, only=options.provider, timeout_s=options.timeout)
    if options.peer:
        yield from peer.check_peer(options.peer, usable, timeout_s=options.timeout)


def _config(options: argparse.Namespace) -> Config | errors.VerbenaError:
    """Returns the node's configuration, or the error that loading it raised."""
    try:
        return load_with_flags(options)
    except errors.VerbenaError as failure:
        return failure


def _lines(diagnosis: Diagnosis, *, colour: bool) -> list[str]:
    verdict = diagnosis.verdict.value.ljust(INDENT)
    if colour:
        verdict = f"\x1b[{COLOURS[diagnosis.verdict]}m{verdict}\x1b[0m"
    lines = [f"{verdict}{diagnosis.check:<26} {diagnosis.finding}"]
    for label, paragraph in (("reason", diagnosis.reason), ("remedy", diagnosis.remedy)):
        for place, line in enumerate(paragraph.splitlines()):
            lines.append(f"{' ' * INDENT}{'' if place else label:<8}{line}")
    return lines


def _require_known(name: str, providers: list[verbs.ProviderInfo]) -> None:
    known = [provider.name for provider in providers]
    wanted = name.partition(":")[0]
    if name and wanted not in known:
        detail = f"there is no provider {wanted!r}; this build has {', '.join(known)}"
        raise errors.setup_error("provider_missing", operation="doctor", detail=detail)
