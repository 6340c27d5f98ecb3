"""The registry's containers, as far as that goes without an engine: the files are read as they would be, and
the three nodes of the one without devices run, each in a network namespace of its own."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.rdma.namespaces import NoNamespaces, machines

from verbena import config
from verbena.cli.app import build_parser
from verbena.cli.registry import SHORT
from verbena.registry import digests

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "Dockerfile.rdma"
FILES = sorted((ROOT / "deploy/registry").glob("docker-compose*.yml"))
SECRET = "a secret for the test's own nodes"
SECRET_NAME = "session-secret"


def compose(file: Path, folder: Path) -> dict[str, Any]:
    """The document, with its secret in a file of the test: compose mounts it in /run/secrets."""
    text = file.read_text()
    assert "${" not in text
    secret = folder / SECRET_NAME
    secret.write_text(SECRET)
    secret.chmod(0o400)
    found: dict[str, Any] = yaml.safe_load(text.replace(f"/run/secrets/{SECRET_NAME}", str(secret)))
    return found


def recipe_environment() -> dict[str, str]:
    text = RECIPE.read_text().replace("\\\n", " ")
    return dict(re.findall(r"(VERBENA_\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", text, re.MULTILINE))))


def loaded(service: dict[str, Any]) -> config.Config:
    """The configuration that the container would have; ConfigurationError if a key or a value is wrong."""
    options = build_parser().parse_args(["registry", *service["command"]])
    flags = {
        key: value for name, (key, *_) in SHORT.items() if (value := getattr(options, name.replace("-", "_")))
    }
    environment = recipe_environment() | service["environment"]
    return config.load(environment=environment, flags=flags)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_three_nodes_know_each_other_and_share_a_secret(file: Path, tmp_path: Path) -> None:
    """A secret of compose, which is in no environment; git ignores its file."""
    document = compose(file, tmp_path)
    services = document["services"]
    assert document["secrets"] == {SECRET_NAME: {"file": f"./{SECRET_NAME}"}}
    assert f"/deploy/registry/{SECRET_NAME}" in (ROOT / ".gitignore").read_text().splitlines()
    assert sorted(services) == ["node1", "node2", "node3"]
    listening = set()
    for name, service in services.items():
        found = loaded(service)
        assert service["secrets"] == [SECRET_NAME]
        assert SECRET not in service["environment"].values()
        assert found.registry.rdma_enabled
        assert found.session.node_name == name
        assert config.read_secret(found).reveal() == SECRET
        host = "127.0.0.1" if service.get("network_mode") == "host" else name
        listening.add(f"{host}:{found.registry.rdma_listen_port}")
        assert found.registry.folder.startswith("/var/lib/verbena/")
    assert set(found.registry.peers.split(",")) == listening


def test_only_the_one_with_devices_has_them() -> None:
    for file in FILES:
        with_devices = "rdma" in file.name
        document = yaml.safe_load(file.read_text())
        for service in document["services"].values():
            assert (service.get("devices") == ["/dev/infiniband"]) is with_devices
            assert (service.get("cap_add") == ["IPC_LOCK"]) is with_devices
            assert (service.get("ulimits") == {"memlock": -1}) is with_devices
            build = service["build"]
            assert (file.parent / build["context"] / build["dockerfile"]).resolve() == RECIPE
            assert all(volume.partition(":")[0] in document["volumes"] for volume in service["volumes"])


def test_the_recipe_uses_files_and_commands_that_there_are() -> None:
    recipe = RECIPE.read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", recipe, flags=re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split()[:-1]), line
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", recipe, flags=re.MULTILINE)
    (command,) = re.findall(r"^CMD (\[.*\])$", recipe, flags=re.MULTILINE)
    assert json.loads(entry) == ["verbena", "registry"]
    build_parser().parse_args(["registry", *json.loads(command)])
    assert recipe_environment()["VERBENA_REGISTRY_LISTEN_ADDRESS"] == "0.0.0.0"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_who_may_delete_without_a_login_is_on_this_machine(file: Path, tmp_path: Path) -> None:
    """Ports are published on loopback; in the host's network the node itself listens there."""
    for service in compose(file, tmp_path)["services"].values():
        keys = loaded(service).registry
        assert keys.anonymous == "delete"
        if service.get("network_mode") == "host":
            assert keys.listen_address == "127.0.0.1"
        else:
            assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("recipe", [RECIPE, ROOT / "Dockerfile"], ids=lambda recipe: recipe.name)
def test_the_linter_has_nothing_to_say_about_a_recipe(recipe: Path) -> None:
    linter = shutil.which(
        "hadolint", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(
        [linter, "--no-color", "--config", ROOT / ".hadolint.yaml", recipe],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture
def nodes() -> Iterator[dict[str, str]]:
    """A namespace for each node, on one switch, where each is found by its name."""
    hosts = "127.0.0.1 localhost\n" + "".join(f"10.78.0.{n} node{n}\n" for n in (1, 2, 3))
    found: list[Path] = []
    try:
        with machines(3, prefix="10.78.0") as network:
            found = [Path("/etc/netns") / space for space in network.spaces]
            for place in found:
                place.mkdir(parents=True)
                (place / "hosts").write_text(hosts)
            yield {f"node{number}": space for number, space in enumerate(network.spaces, 1)}
    except NoNamespaces as error:
        pytest.skip(str(error))
    finally:
        for place in found:
            shutil.rmtree(place, ignore_errors=True)


# A client inside a namespace: method, path and the file of the body; prints status, Location and a digest.
CLIENT = """
import hashlib, http.client, json, sys
method, path, file = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", 5000, timeout=50)
connection.request(method, path, open(file, "rb").read() if file else None)
answer = connection.getresponse()
body = answer.read()
print(json.dumps([answer.status, answer.headers.get("Location"), hashlib.sha256(body).hexdigest()]))
"""


def test_the_three_nodes_without_devices_give_blobs_to_each_other(
    nodes: dict[str, str], tmp_path: Path
) -> None:
    """The file's own commands and variables, in three network namespaces; the TCP wire is what they have."""
    document = compose(ROOT / "deploy/registry/docker-compose.yml", tmp_path)
    running = []

    def request(node: str, method: str, path: str, file: str = "") -> tuple[int, str, str]:
        done = subprocess.run(
            ["ip", "netns", "exec", nodes[node], sys.executable, "-c", CLIENT, method, path, file],
            capture_output=True,
            text=True,
            check=True,
        )
        status, location, digest = json.loads(done.stdout)
        return status, location, digest

    try:
        for name, service in document["services"].items():
            environment = {key: value for key, value in os.environ.items() if not key.startswith("VERBENA_")}
            environment |= recipe_environment() | service["environment"]
            environment["VERBENA_REGISTRY_FOLDER"] = str(tmp_path / name)
            command = [sys.executable, "-m", "verbena", "registry", *service["command"]]
            process = subprocess.Popen(
                ["ip", "netns", "exec", nodes[name], *command],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.append(process)
            assert process.stdout is not None
            banner = [process.stdout.readline() for _ in range(4)]
            assert "0.0.0.0:9999 on" in banner[2], banner
        content = random.Random(1).randbytes(9 << 20)
        (tmp_path / "blob").write_bytes(content)
        status, where, _ = request("node1", "POST", "/v2/app/blobs/uploads/")
        assert status == 202
        digest = digests.of(content)
        status, _, _ = request("node1", "PUT", f"{where}?digest={digest}", str(tmp_path / "blob"))
        assert status == 201
        for node in ("node2", "node3"):
            path = f"/v2/app/blobs/{digest}"
            assert request(node, "GET", path) == (200, None, digest.encoded), node
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.communicate()
