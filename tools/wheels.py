"""Builds the source distribution and, from it, a wheel for each CPython here, and tries each wheel.

Interpreters are python3.10 … python3.14 on the path, pyenv's, and those given with --python. With --debian,
as root, missing ones come from a newer Debian that mmdebstrap unpacks below build/. Build requirements are
installed first; the build itself runs without network where that is permitted. Each wheel is then installed
into a clean environment and tested: verbs, two processes, a session, the store."""

from __future__ import annotations

import argparse
import ast
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PYENV = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))

# The Debian release for versions that the stable one lacks, and the packages needed there.
NEWER = {"3.13": "trixie", "3.14": "forky"}
PACKAGES = "ca-certificates g++ cmake ninja-build libibverbs-dev librdmacm-dev libssl-dev"
MOUNTED = ("/dev", "/proc", "/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs", "/etc/hosts")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="dist", help="where to (default: dist); - with --sdist-only: stdout")
    parser.add_argument("--sdist-only", action="store_true", help="no wheels")
    parser.add_argument("--python", action="append", default=[], help="an interpreter (may be repeated)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="3.X", help="that version alone (likewise)"
    )
    parser.add_argument(
        "--debian", action="store_true", help="take versions that are not here from newer Debians"
    )
    parser.add_argument("--sdist", help=argparse.SUPPRESS)  # internal, for the run inside that Debian
    options = parser.parse_args()
    if options.out == "-":
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.buffer.write(_sdist(Path(folder)).read_bytes())
        return 0
    out = Path(options.out).resolve()
    source = Path(options.sdist) if options.sdist else _sdist(out)
    print(f"{source.name}: {source.stat().st_size >> 10} KiB")
    if options.sdist_only:
        return 0
    wanted = options.only or VERSIONS
    found = _interpreters(options.python)
    pythons = {version: python for version, python in found.items() if version in wanted}
    missing = [version for version in VERSIONS if version in wanted and version not in pythons]
    print("interpreters:", ", ".join(pythons), *(("; not here:", ", ".join(missing)) if missing else ()))
    tree = _unpack(source) if pythons else source
    failures = [version for version, python in pythons.items() if not _wheel(version, python, tree, out)]
    for version in missing if options.debian else ():
        if version in NEWER and not _in_debian(version, source, out):
            failures.append(version)
    print("all wheels built and tried" if not failures else f"failed: {', '.join(failures)}")
    return 1 if failures else 0


def _sdist(out: Path) -> Path:
    """Builds the source distribution with the backend of pyproject.toml."""
    out.mkdir(parents=True, exist_ok=True)
    code = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return out / done.stdout.split()[-1]


def _build_requirements() -> list[str]:
    (listed,) = re.findall(
        r"^requires = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    return list(ast.literal_eval(listed))


def _unpack(source: Path) -> Path:
    """Unpacks to one fixed place for all builds, so that a compiler cache can be reused."""
    folder = ROOT / "build/wheels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(source) as archive:
        archive.extractall(folder)
    (tree,) = folder.iterdir()
    return tree


def _interpreters(more: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for version in VERSIONS:
        pyenv = sorted(glob.glob(f"{PYENV}/versions/{version}.*/bin/python"))
        python = shutil.which(f"python{version}") or (pyenv[-1] if pyenv else None)
        for candidate in filter(None, (python, *pyenv[-1:])):
            if _version(candidate) == version:
                found[version] = candidate
                break
    for python in more:
        found[_version(python)] = python
    return dict(sorted(found.items(), key=lambda row: tuple(map(int, row[0].split(".")))))


def _without_network() -> tuple[str, ...]:
    """Returns a command prefix that removes network access; empty if that is not permitted."""
    alone = ("unshare", "--net", "--map-root-user")
    permitted = subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0
    return alone if permitted else ()


def _in_debian(version: str, source: Path, out: Path) -> bool:
    """Runs this program in a Debian with the interpreter, created once; this tree is mounted inside."""
    suite = NEWER[version]
    root = ROOT / f"build/debian-{suite}"
    if not (root / f"usr/bin/python{version}").exists():
        shutil.rmtree(root, ignore_errors=True)
        packages = [*PACKAGES.split(), f"python{version}-venv", f"python{version}-dev"]
        # Snapshots and outdated mirrors are acceptable, because signatures are still verified.
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}"]
        command += ['--aptopt=Acquire::Check-Valid-Until "false"', suite, str(root)]
        subprocess.run(command, check=True)
    mounts = [f"mount --rbind {name} {root}{name}" for name in MOUNTED if Path(name).is_dir()]
    mounts += [
        f"rm -f {root}{name} && touch {root}{name} && mount --bind {name} {root}{name}"
        for name in MOUNTED
        if Path(name).is_file()
    ]
    for folder in {ROOT, out}:
        mounts.append(f"mkdir -p {root}{folder} && mount --bind {folder} {root}{folder}")
    inside = f"python{version} {ROOT}/tools/wheels.py --only {version} --sdist {source} --out {out}"
    script = " && ".join([*mounts, f"exec chroot {root} {inside}"])
    kept = {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "SSL_", "http"))}
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **kept}
    print(f"  {version}  in Debian {suite}:", flush=True)
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], check=False, env=environment)
    return done.returncode == 0


def _version(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _wheel(version: str, python: str, tree: Path, out: Path) -> bool:
    """Builds a wheel without network from requirements installed before, then tests it in a clean
    environment."""
    log = ROOT / f"build/log/wheel-{version}"
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open(log, "w") as written:

        def run(*command: str | Path) -> None:
            written.write(f"$ {' '.join(map(str, command))}\n")
            written.flush()
            subprocess.run(command, stdout=written, stderr=subprocess.STDOUT, check=True, cwd=folder)

        try:
            build, clean = Path(folder, "build"), Path(folder, "clean")
            run(python, "-m", "venv", build)
            run(build / "bin/pip", "install", *_build_requirements(), "cmake", "ninja")
            offline = ("--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir")
            cmake = tree.parent / "cmake"
            shutil.rmtree(cmake, ignore_errors=True)
            run(
                *_without_network(),
                build / "bin/pip",
                "wheel",
                *offline,
                f"--config-settings=build-dir={cmake}",
                "--wheel-dir",
                Path(folder, "made"),
                tree,
            )
            (wheel,) = Path(folder, "made").glob("*.whl")
            run(python, "-m", "venv", clean)
            run(clean / "bin/pip", "install", wheel)
            run(clean / "bin/python", ROOT / "tools/trial.py")
            for example in ("hello.py", "two_processes.py"):
                run(clean / "bin/python", ROOT / "examples" / example)
            run(clean / "bin/verbena", "doctor", "--provider", "shm")
            run(clean / "bin/pip", "check")
        except subprocess.CalledProcessError as error:
            print(f"  {version}  FAILED with status {error.returncode}: {log.relative_to(ROOT)}", flush=True)
            return False
        shutil.copy(wheel, out)
        print(f"  {version}  {wheel.name}  {wheel.stat().st_size >> 10} KiB, tried", flush=True)
        return True


if __name__ == "__main__":
    sys.exit(main())
