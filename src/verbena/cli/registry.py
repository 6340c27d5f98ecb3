"""`verbena registry`: runs a container registry. `check` and `gc` maintain its folder, also while it is
served."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

from verbena import __version__
from verbena.cli import text
from verbena.cli.help.parser import Parser
from verbena.cli.progress import Progress, Waiting
from verbena.cli.safety import registry_notes, require_disk, require_memory, session_note
from verbena.cli.service import keep_files_private, stop_event
from verbena.config import Config
from verbena.config.flags import given_flags
from verbena.config.load import load
from verbena.errors import setup_error

EPILOG = """\
examples:
  verbena registry                                 serve ./verbena-registry on 127.0.0.1:5000
  verbena registry --rdma-enabled --peers b:9999   with other nodes; needs a secret in verbena.toml
  verbena registry check                           verify all digests; move damaged files aside
  verbena registry gc                              remove unreferenced content; works while serving
"""
USUAL = (
    "registry.listen_address",
    "registry.tls",
    "registry.htpasswd",
)
NOTES = """\
more examples:
  skopeo copy --dest-tls-verify=false docker-archive:app.tar docker://127.0.0.1:5000/app:latest
  verbena registry --upstream https://registry.example      pull-through cache of another registry
  verbena registry --registry-htpasswd users --registry-listen-address 0.0.0.0 --registry-tls

Every configuration key has a flag: `verbena config reference KEY` prints it.

SIGTERM or SIGINT: finish running requests, exit with status 0. SIGHUP: reopen the access log.
"""
# Short names of configuration keys: the key, the name of the value, the help.
SHORT = {
    "port": ("registry.port", "PORT", "TCP port for clients (default: 5000)"),
    "folder": ("registry.folder", "DIR", "folder of blobs and database (default: verbena-registry)"),
    "rdma-enabled": ("registry.rdma_enabled", "", "exchange blobs with other nodes"),
    "rdma-listen-addr": ("registry.rdma_listen_addr", "HOST", "address on which other nodes are accepted"),
    "rdma-listen-port": ("registry.rdma_listen_port", "PORT", "port on which other nodes are accepted"),
    "peers": ("registry.peers", "HOST:PORT,…", "addresses of the other nodes"),
    "upstream": ("registry.upstream", "URL,…", "registries to fetch from if no node has the content"),
}


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "registry",
        description="Serves container images and other artifacts (OCI distribution specification v1.1).",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="serve",
        choices=("serve", "check", "gc"),
        help="serve (default), check the stored content, or collect garbage",
    )
    for name, (_, metavar, words) in SHORT.items():
        if metavar:
            option = parser.add_argument(f"--{name}", metavar=metavar, help=words)
        else:
            option = parser.add_argument(f"--{name}", action="store_const", const="true", help=words)
        if name.startswith("rdma-listen") or name == "upstream":
            parser.hide(option)
    keep = parser.add_argument(
        "--keep", action="store_true", help="check: report damaged files but leave them in place"
    )
    as_json = parser.add_argument("--json", action="store_true", help="check and gc: print one JSON document")
    parser.hide(keep, as_json)
    parser.add_config(*USUAL, first=("registry", "registry.retention", "registry.s3"))
    return parser


def run(options: argparse.Namespace) -> int:
    flags = given_flags(options)
    for name, (key, *_) in SHORT.items():
        value = getattr(options, name.replace("-", "_"))
        if value is not None:
            flags.setdefault(key, value)
    config = load(options.config, flags=flags)
    keep_files_private()
    if options.action == "check":
        return _check(config, keep=options.keep, as_json=options.json)
    if options.action == "gc":
        return _collect(config, as_json=options.json)
    for package in ("aiohttp", "bcrypt"):
        if importlib.util.find_spec(package) is None:
            raise setup_error("registry_missing", operation="serve", detail=package)
    return asyncio.run(_serve(config))


async def _serve(config: Config) -> int:
    from verbena.registry.program import serving
    from verbena.transport.configured import configure_log

    loop, stopped = asyncio.get_running_loop(), stop_event()
    require_memory(config, "registry.window_size")
    require_disk(config, "registry.s3.cache_size", config.registry.folder)
    configure_log(config)
    async with serving(config) as program:
        loop.add_signal_handler(signal.SIGHUP, program.server.access_log.reopen)
        lines = [f"verbena {__version__} registry, pid {os.getpid()}"]
        page = " (API and web page)" if config.registry.page else ""
        lines += [f"  {'clients':<12}{address}{page}" for address in program.server.addresses]
        if program.nodes is not None and program.nodes.listener is not None:
            wires = ", ".join(program.nodes.listener.wires)
            lines.append(f"  {'nodes':<12}{program.nodes.address} on {wires}")
        if program.registry.recall is not None:
            lines.append(f"  {'bucket':<12}{program.registry.recall.bucket}")
        lines.append(f"  {'folder':<12}{program.registry.folder}")
        if program.metrics_address:
            page = f" (node page: {program.metrics_address}/)" if program.nodes is not None else ""
            lines.append(f"  {'metrics':<12}{program.metrics_address}/metrics{page}")
        notes = registry_notes(config) + ([session_note(config)] if program.nodes is not None else [])
        lines += [f"  note: {note}" for note in notes if note]
        print("\n".join(lines), flush=True)
        await stopped.wait()
    print("verbena: registry stopped", file=sys.stderr)
    return 0


def _folder(config: Config) -> Path:
    folder = Path(config.registry.folder)
    if not (folder / "registry.db").is_file():
        raise setup_error("registry_folder", operation="open", detail=f"no registry in {folder}")
    return folder


def _check(config: Config, *, keep: bool, as_json: bool) -> int:
    from verbena.registry.bucket import BucketFailed, bucket_of
    from verbena.registry.scrub import check

    bucket = bucket_of(config.registry.s3)
    try:
        with Progress("checking blobs") as bar:
            checked = check(_folder(config), repair=not keep, bucket=bucket, progress=bar.update)
    except BucketFailed as failed:
        assert bucket is not None
        raise bucket.unavailable_error(str(failed)) from failed
    if as_json:
        print(json.dumps(dataclasses.asdict(checked), indent=2))
        return 1 if checked.findings else 0
    for finding in checked.findings:
        print(finding)
    print(
        f"checked {checked.blobs} blobs ({text.amount(checked.bytes)}) and {checked.manifests} manifests:"
        f" {len(checked.findings)} problems"
    )
    return 1 if checked.findings else 0


def _collect(config: Config, *, as_json: bool) -> int:
    from verbena.registry.bucket import BucketFailed, bucket_of
    from verbena.registry.gc import Policy, collect

    keys = config.registry.retention
    policy = Policy(keys.grace_s, keys.upload_timeout_s, keys.keep_tags, keys.keep_untagged_s)
    bucket = bucket_of(config.registry.s3)
    try:
        with Waiting("removing unreferenced content"):
            removed = collect(_folder(config), policy, bucket=bucket)
    except BucketFailed as failed:
        assert bucket is not None
        raise bucket.unavailable_error(str(failed)) from failed
    print(json.dumps(dataclasses.asdict(removed)) if as_json else f"removed {removed}")
    return 0
