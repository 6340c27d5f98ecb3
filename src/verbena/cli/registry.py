"""`verbena registry`: runs a container registry. `check` and `gc` maintain its folder, also while it is
served."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import sys
from pathlib import Path

from verbena import __version__
from verbena.cli import text
from verbena.cli.service import keep_files_private, stop_event
from verbena.config import Config
from verbena.config.flags import add_flags, given_flags
from verbena.config.load import load
from verbena.errors import setup_error
from verbena.transport.configured import configure_log

EPILOG = """\
examples:
  verbena registry                                       serve on 127.0.0.1:5000, in ./verbena-registry
  skopeo copy --dest-tls-verify=false docker-archive:app.tar docker://127.0.0.1:5000/app:latest
  verbena registry --registry-htpasswd users --registry-listen-address 0.0.0.0 --registry-tls
  verbena registry --rdma-enabled --peers b:9999,c:9999  with other nodes; needs a secret in verbena.toml
  verbena registry --upstream https://registry.example   pull-through cache of another registry
  verbena registry check                                 verify all digests; move damaged files aside
  verbena registry gc                                    remove unreferenced content; works while serving

Every configuration key has a flag: `verbena config reference KEY` prints it.

SIGTERM or SIGINT: finish running requests, exit with status 0. SIGHUP: reopen the access log.
"""
# Short names of configuration keys.
SHORT = {
    "port": "registry.port",
    "folder": "registry.folder",
    "rdma-enabled": "registry.rdma_enabled",
    "rdma-listen-addr": "registry.rdma_listen_addr",
    "rdma-listen-port": "registry.rdma_listen_port",
    "peers": "registry.peers",
    "upstream": "registry.upstream",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "registry",
        help="run a container registry",
        description="Serves container images and other artifacts (OCI distribution specification v1.1).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="serve",
        choices=("serve", "check", "gc"),
        help="serve (default), check the stored content, or collect garbage",
    )
    for name, key in SHORT.items():
        flag = f"--{key}".replace(".", "-").replace("_", "-")
        if key == "registry.rdma_enabled":
            parser.add_argument(f"--{name}", action="store_const", const="true", help=f"short for {flag}")
        else:
            parser.add_argument(f"--{name}", metavar="VALUE", help=f"short for {flag}")
    parser.add_argument(
        "--keep", action="store_true", help="check: report damaged files but leave them in place"
    )
    add_flags(parser, listed=("registry", "registry.retention", "registry.s3"))
    return parser


def run(options: argparse.Namespace) -> int:
    flags = given_flags(options)
    for name, key in SHORT.items():
        value = getattr(options, name.replace("-", "_"))
        if value is not None:
            flags.setdefault(key, value)
    config = load(options.config, flags=flags)
    keep_files_private()
    if options.action == "check":
        return _check(config, keep=options.keep)
    if options.action == "gc":
        return _collect(config)
    for package in ("aiohttp", "bcrypt"):
        if importlib.util.find_spec(package) is None:
            raise setup_error("registry_missing", operation="serve", detail=package)
    return asyncio.run(_serve(config))


async def _serve(config: Config) -> int:
    from verbena.registry.program import serving

    loop, stopped = asyncio.get_running_loop(), stop_event()
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
        print("\n".join(lines), flush=True)
        await stopped.wait()
    print("verbena: registry stopped", file=sys.stderr)
    return 0


def _folder(config: Config) -> Path:
    folder = Path(config.registry.folder)
    if not (folder / "registry.db").is_file():
        raise setup_error("registry_folder", operation="open", detail=f"no registry in {folder}")
    return folder


def _check(config: Config, *, keep: bool) -> int:
    from verbena.registry.bucket import BucketFailed, bucket_of
    from verbena.registry.scrub import check

    bucket = bucket_of(config.registry.s3)
    try:
        checked = check(_folder(config), repair=not keep, bucket=bucket)
    except BucketFailed as failed:
        assert bucket is not None
        raise bucket.unavailable_error(str(failed)) from failed
    for finding in checked.findings:
        print(finding)
    print(
        f"checked {checked.blobs} blobs ({text.amount(checked.bytes)}) and {checked.manifests} manifests:"
        f" {len(checked.findings)} problems"
    )
    return 1 if checked.findings else 0


def _collect(config: Config) -> int:
    from verbena.registry.bucket import BucketFailed, bucket_of
    from verbena.registry.gc import Policy, collect

    keys = config.registry.retention
    policy = Policy(keys.grace_s, keys.upload_timeout_s, keys.keep_tags, keys.keep_untagged_s)
    bucket = bucket_of(config.registry.s3)
    try:
        print(f"removed {collect(_folder(config), policy, bucket=bucket)}")
    except BucketFailed as failed:
        assert bucket is not None
        raise bucket.unavailable_error(str(failed)) from failed
    return 0
