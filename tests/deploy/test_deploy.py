"""What operators take: alerts and dashboard, the container's recipe, the source distribution."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from verbena.cli.app import build_parser
from verbena.transport.observe.metrics.table import METRICS

ROOT = Path(__file__).parents[2]
NAMES = {metric.name for metric in METRICS} | {
    f"{metric.name}_{part}"
    for metric in METRICS
    if metric.kind == "histogram"
    for part in ("bucket", "sum", "count")
}
LABELS = {metric.name: {*metric.labels, "le", "instance", "__name__"} for metric in METRICS}


def tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expressions() -> list[str]:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    panels = tool("dashboard").dashboard()["panels"]
    return alerts + [target["expr"] for panel in panels for target in panel["targets"]]


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    """Every name of ours, in every expression and variable, is a row of the table."""
    texts = [*expressions(), (ROOT / "deploy/grafana/verbena.json").read_text()]
    used = {name for text in texts for name in re.findall(r"\bverbena_\w+", text)}
    assert len(used) > 12
    assert used <= NAMES


def test_alerts_and_dashboard_use_labels_that_their_metrics_have() -> None:
    for expression in expressions():
        for name, inner in re.findall(r"\b(verbena_\w+)\{([^}]*)\}", expression):
            metric = re.sub(r"_(bucket|sum|count)$", "", name) if name not in LABELS else name
            assert set(re.findall(r"(\w+)=~?", inner)) <= LABELS[metric], expression


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_the_dashboard_is_the_one_that_its_table_makes() -> None:
    assert (ROOT / "deploy/grafana/verbena.json").read_text() == tool("dashboard").text()


def test_the_containers_recipe_uses_files_and_commands_that_there_are() -> None:
    recipe = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", recipe, flags=re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split()[:-1]), line
    (command,) = re.findall(r"^CMD (\[.*\])$", recipe, flags=re.MULTILINE)
    build_parser().parse_args(yaml.safe_load(command))


@pytest.mark.parametrize("recipe", ["Dockerfile", "Dockerfile.rdma"])
def test_an_image_serves_metrics_on_loopback_only(recipe: str) -> None:
    """They have no access control, and with --network host the container's addresses are the host's."""
    text = (ROOT / recipe).read_text()
    assert set(re.findall(r"METRICS_LISTEN=(\S+):", text)) <= {"127.0.0.1"}
    assert "9121" not in " ".join(re.findall(r"^EXPOSE (.*)$", text, flags=re.MULTILINE))


def test_the_source_distribution_has_what_a_build_needs_and_nothing_built() -> None:
    """Made by the build backend itself; `make wheels` builds from it, without a network."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools/wheels.py", "--sdist-only", "--out", "-"],
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "PKG-INFO"):
        assert name in names
    native = {str(path.relative_to(ROOT)) for path in (ROOT / "src/native").rglob("*.cc")}
    assert native <= names
    assert not [
        name for name in names if name.endswith((".so", ".pyc")) or name.startswith((".venv", "build/"))
    ]
