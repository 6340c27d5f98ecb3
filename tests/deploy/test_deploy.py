"""What operators take: alerts and dashboard, the container's recipe, the source distribution."""

from __future__ import annotations

import importlib
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
from verbena.kv.observe import table as store_table
from verbena.transport.observe.metrics import table as node_table

ROOT = Path(__file__).parents[2]
METRICS = (*node_table.METRICS, *store_table.METRICS)
OF_PROMETHEUS = {"le", "instance", "job", "__name__"}
LABELS = {series: {*metric.labels, *OF_PROMETHEUS} for metric in METRICS for series in metric.series}
RULE_FILES = sorted((ROOT / "deploy/prometheus").glob("*alerts.yml"))
DASHBOARDS = {"dashboard": "verbena", "store_dashboard": "verbena-store"}  # by tool


def tool(name: str) -> Any:
    if str(ROOT / "tools") not in sys.path:
        sys.path.insert(0, str(ROOT / "tools"))
    return importlib.import_module(name)


def rules() -> list[dict[str, Any]]:
    groups = [group for path in RULE_FILES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    panels = [panel for name in DASHBOARDS for panel in tool(name).dashboard()["panels"]]
    targets = [target["expr"] for panel in panels for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + targets


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    """Every name of ours, in every expression and variable, is a row of the table."""
    texts = [path.read_text() for path in (ROOT / "deploy/grafana").glob("*.json")]
    found = (re.findall(r"\b(?:verbena|redis)_\w+", text) for text in (*expressions(), *texts))
    used = {name for names in found for name in names}
    assert len(used) > 50
    assert used <= LABELS.keys()


def test_alerts_and_dashboard_use_labels_that_their_metrics_have() -> None:
    for expression in expressions():
        for name, inner in re.findall(r"\b((?:verbena|redis)_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)!?[=~]", inner)) <= LABELS[name], expression


def test_every_alert_says_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    assert len({rule["alert"] for rule in rules()}) == len(rules())


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_the_one_that_its_table_makes(name: str) -> None:
    assert (ROOT / f"deploy/grafana/{DASHBOARDS[name]}.json").read_text() == tool(name).text()


def test_the_alerts_of_stores_are_those_that_their_table_makes() -> None:
    assert (ROOT / "deploy/prometheus/store-alerts.yml").read_text() == tool("store_alerts").text()


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
