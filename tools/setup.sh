#!/bin/sh
# Prepares a checkout to build and run Verbena (run), or to test it as well (test): the system packages of
# tools/packages.sh, .venv, and in it the Python packages that pyproject.toml names.
# Usage: tools/setup.sh run|test       PYTHON=python3 CXX=c++
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
level=${1:-run}

tools/packages.sh "$level"
[ -x .venv/bin/pip ] || tools/step.sh venv "$PYTHON" -m venv .venv

# requirements GROUP…: "build", "runtime", or the name of an optional group.
requirements() {
    .venv/bin/python - "$@" <<'END'
import sys
try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
groups = {"build": project["build-system"]["requires"], "runtime": project["project"]["dependencies"]}
groups |= project["project"]["optional-dependencies"]
print(*(requirement for name in sys.argv[1:] for requirement in groups[name]), sep="\n")
END
}

# pip_install STEP: the requirements of build/requirements.txt, if there are any.
pip_install() {
    ! grep -q . build/requirements.txt ||
        tools/step.sh "$1" .venv/bin/pip install --disable-pip-version-check -r build/requirements.txt
}

mkdir -p build
PATH=$PWD/.venv/bin:$PATH
requirements build runtime >build/requirements.txt
[ "$level" = run ] || requirements dev >>build/requirements.txt
pip_install "$level-requirements"
# cmake and ninja come as wheels if the system has none, or too old a cmake.
.venv/bin/python -c 'import scikit_build_core.build as b; print(*b.get_requires_for_build_wheel(), sep="\n")' >build/requirements.txt
pip_install build-tools
