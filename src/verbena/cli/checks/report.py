"""The report of `verbena doctor`: runs all checks and prints each diagnosis as soon as it is known."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator

from verbena import errors, verbs
from verbena.cli.checks import adapters, devices, kernel, limits, network, peer, settings, transfer
from verbena.cli.checks.diagnosis import Diagnosis, Roots, Verdict
from verbena.cli.checks.script import script
from verbena.cli.output.colour import Colour, paint
from verbena.cli.progress import Waiting
from verbena.config import Config
from verbena.config.flags import load_with_flags

COLOURS = {Verdict.OK: Colour.GREEN, Verdict.WARN: Colour.YELLOW, Verdict.ERROR: Colour.RED}
INDENT = 7  # width of a verdict plus the gap


def run(options: argparse.Namespace) -> int:
    providers = verbs.providers()
    _require_known(options.provider, providers)
    found = []
    as_lines = not options.json and not options.fix
    with Waiting("checking this machine") as waiting:
        for diagnosis in _examine(providers, Roots(), options):
            found.append(diagnosis)
            if as_lines:
                waiting.say("\n".join(_lines(diagnosis)))
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
    yield from _check_devices(providers, roots)
    yield from limits.check_limits(roots)
    config = _config(options)
    yield from settings.check_settings(config, providers, roots)
    usable = config if isinstance(config, Config) else Config()
    yield network.check_firewall(usable.session.listen_port)
    yield from transfer.check_transfers(providers, only=options.provider, timeout_s=options.timeout)
    if options.peer:
        yield from peer.check_peer(options.peer, usable, timeout_s=options.timeout)


def _check_devices(providers: list[verbs.ProviderInfo], roots: Roots) -> Iterator[Diagnosis]:
    """Without a device, modules, nodes and devices are one fact: one diagnosis, or that of an adapter."""
    found = adapters.check_adapters(roots)
    if not devices.has_device(roots):
        missing = any(diagnosis.verdict is not Verdict.OK for diagnosis in found)
        yield from found if missing else [devices.check_absence(roots)]
        return
    yield from kernel.check_modules(roots)
    yield from found
    yield from devices.check_nodes(roots)
    for provider in providers:
        if provider.name == transfer.KERNEL_PROVIDER:
            yield devices.check_devices(provider, roots)
            for device in provider.devices:
                yield from devices.check_device(device.attributes, roots)
                yield from network.check_network(device.attributes, roots)
    yield kernel.check_software_device(roots)


def _config(options: argparse.Namespace) -> Config | errors.VerbenaError:
    """Returns the node's configuration, or the error that loading it raised."""
    try:
        return load_with_flags(options)
    except errors.VerbenaError as failure:
        return failure


def _lines(diagnosis: Diagnosis) -> list[str]:
    verdict = paint(diagnosis.verdict.value.ljust(INDENT), COLOURS[diagnosis.verdict], sys.stdout)
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
