"""Third-party clients against the real server: skopeo, podman, buildah, umoci and curl."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest
from support.certificates import Authority
from support.registry.process import Process, registry_process

from verbena.registry import digests
from verbena.registry.manifests import OCI_INDEX, OCI_MANIFEST

Run = Callable[..., str]
PLAIN = "--tls-verify=false"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a client in a home of its own, with no need for rights; skips the test where there is none."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{home}/run"\ngraphroot = "{home}/graph"\n'
    )
    (home / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (home / ".config" / "containers").mkdir(parents=True)
    shutil.copy(home / "policy.json", home / ".config" / "containers" / "policy.json")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "CONTAINERS_STORAGE_CONF": str(home / "storage.conf"),
        "TMPDIR": str(home),
    }

    def call(*command: str | Path, status: int = 0) -> str:
        if shutil.which(str(command[0])) is None:
            pytest.skip(f"{command[0]} is not installed")
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=home, timeout=50, check=False
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return call


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    with registry_process(tmp_path / "data") as process:
        yield process
        assert process.end() == 0


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """An OCI layout with an index of two images, made by hand: two layers each, one of them shared."""
    folder = tmp_path / "layout"
    (folder / "blobs" / "sha256").mkdir(parents=True)

    def blob(content: bytes, kind: str, **more: object) -> dict[str, object]:
        digest = digests.of(content)
        (folder / "blobs" / "sha256" / digest.encoded).write_bytes(content)
        return {"mediaType": kind, "digest": str(digest), "size": len(content), **more}

    images = []
    for architecture in ("amd64", "arm64"):
        tars = [tar({"etc/shared": b"shared" * 1000}), tar({"etc/arch": architecture.encode()})]
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [str(digests.of(one)) for one in tars]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
            "layers": [
                blob(gzip.compress(one, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
                for one in tars
            ],
        }
        platform = {"architecture": architecture, "os": "linux"}
        images.append(blob(json.dumps(manifest).encode(), OCI_MANIFEST, platform=platform))
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": images}
    named = {"annotations": {"org.opencontainers.image.ref.name": "both"}}
    one = {"annotations": {"org.opencontainers.image.ref.name": "one"}}
    top = [{**blob(json.dumps(index).encode(), OCI_INDEX), **named}, {**images[0], **one}]
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": top}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_skopeo_pushes_copies_lists_pulls_and_deletes(
    server: Process, run: Run, layout: Path, tmp_path: Path
) -> None:
    at = f"docker://{server.address}"
    run("skopeo", "copy", "--all", f"--dest{PLAIN[1:]}", f"oci:{layout}:both", f"{at}/lib/app:1.0")
    run("skopeo", "copy", f"--dest{PLAIN[1:]}", f"oci:{layout}:one", f"{at}/lib/app:one")
    tags = json.loads(run("skopeo", "list-tags", PLAIN, f"{at}/lib/app"))
    assert tags["Tags"] == ["1.0", "one"]
    found = json.loads(run("skopeo", "inspect", PLAIN, "--raw", f"{at}/lib/app:1.0"))
    assert [entry["platform"]["architecture"] for entry in found["manifests"]] == ["amd64", "arm64"]
    both = ("--all", f"--src{PLAIN[1:]}", f"--dest{PLAIN[1:]}")
    run("skopeo", "copy", *both, f"{at}/lib/app:1.0", f"{at}/other/app:2.0")
    run("skopeo", "copy", "--all", f"--src{PLAIN[1:]}", f"{at}/other/app:2.0", f"oci:{tmp_path}/back:both")
    for path in (layout / "blobs" / "sha256").iterdir():
        assert (tmp_path / "back" / "blobs" / "sha256" / path.name).read_bytes() == path.read_bytes()
    run("skopeo", "delete", PLAIN, f"{at}/lib/app:one")
    tags = json.loads(run("skopeo", "list-tags", PLAIN, f"{at}/lib/app"))
    assert "one" not in tags["Tags"]
    run("skopeo", "inspect", PLAIN, f"{at}/lib/app:one", status=1)


def test_docker_manifests_are_accepted(server: Process, run: Run, layout: Path, tmp_path: Path) -> None:
    at = f"docker://{server.address}/lib/app:docker"
    run("skopeo", "copy", "--format", "v2s2", f"--dest{PLAIN[1:]}", f"oci:{layout}:one", at)
    raw = json.loads(run("skopeo", "inspect", PLAIN, "--raw", at))
    assert raw["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    run("skopeo", "copy", f"--src{PLAIN[1:]}", at, f"dir:{tmp_path}/dir")


@pytest.mark.parametrize("tokens", [False, True])
def test_skopeo_logs_in(tmp_path: Path, run: Run, layout: Path, tokens: bool) -> None:
    """With a password each time, and with a token for it; over TLS."""
    authority = Authority(tmp_path)
    own = authority.issue("registry")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(rounds=4)).decode()
    (tmp_path / "users").write_text(f"alice:{hashed}\n")
    (tmp_path / "certs").mkdir()
    shutil.copy(authority.ca, tmp_path / "certs" / "ca.crt")
    arguments = ["--registry-htpasswd", str(tmp_path / "users"), "--registry-tls"]
    arguments += ["--tls-certificate", str(own.certificate), "--tls-key", str(own.key)]
    arguments += ["--registry-tokens"] if tokens else []
    with registry_process(tmp_path / "data", *arguments) as server:
        at, certs = f"docker://{server.address}/lib/app:1", f"{tmp_path}/certs"
        target = ("--dest-cert-dir", certs)
        run("skopeo", "copy", *target, f"oci:{layout}:one", at, status=1)
        run("skopeo", "copy", *target, "--dest-creds", "alice:wrong", f"oci:{layout}:one", at, status=1)
        run("skopeo", "copy", *target, "--dest-creds", "alice:secret", f"oci:{layout}:one", at)
        back = ("--src-cert-dir", certs, "--src-creds", "alice:secret")
        run("skopeo", "copy", *back, at, f"dir:{tmp_path}/dir")
        assert server.end() == 0


def test_podman_pulls_and_pushes(server: Process, run: Run, layout: Path) -> None:
    at = f"{server.address}/lib/app"
    run("skopeo", "copy", f"--dest{PLAIN[1:]}", f"oci:{layout}:one", f"docker://{at}:1")
    run("podman", "pull", PLAIN, f"{at}:1")
    run("podman", "tag", f"{at}:1", f"{at}:2")
    run("podman", "push", PLAIN, f"{at}:2")
    run("podman", "rmi", f"{at}:1", f"{at}:2")
    run("podman", "pull", PLAIN, f"{at}:2")


def test_buildah_builds_on_it_and_pushes(server: Process, run: Run, layout: Path, tmp_path: Path) -> None:
    at = f"{server.address}/lib/app"
    (tmp_path / "new").write_text("new")
    run("skopeo", "copy", f"--dest{PLAIN[1:]}", f"oci:{layout}:one", f"docker://{at}:1")
    run("buildah", "from", PLAIN, "--name", "work", f"{at}:1")
    run("buildah", "copy", "work", tmp_path / "new", "/new")
    run("buildah", "commit", "work", f"{at}:built")
    run("buildah", "push", PLAIN, f"{at}:built")
    found = json.loads(run("skopeo", "inspect", PLAIN, f"docker://{at}:built"))
    assert len(found["Layers"]) >= 2


def test_umoci_unpacks_what_was_pulled(server: Process, run: Run, layout: Path, tmp_path: Path) -> None:
    at = f"docker://{server.address}/lib/app:1"
    run("skopeo", "copy", f"--dest{PLAIN[1:]}", f"oci:{layout}:one", at)
    run("skopeo", "copy", f"--src{PLAIN[1:]}", at, f"oci:{tmp_path}/back:one")
    run("umoci", "unpack", "--rootless", "--image", f"{tmp_path}/back:one", f"{tmp_path}/bundle")
    assert (tmp_path / "bundle" / "rootfs" / "etc" / "arch").read_text() == "amd64"


def test_curl_resumes_a_pull(server: Process, run: Run, tmp_path: Path) -> None:
    content = os.urandom(1_000_000)
    digest = server.push_blob("a", content)
    file = tmp_path / "part"
    file.write_bytes(content[:123_456])
    run("curl", "-sf", "-C", "-", "-o", file, f"http://{server.address}/v2/a/blobs/{digest}")
    assert file.read_bytes() == content
