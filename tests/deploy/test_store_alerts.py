"""The alert rules and the dashboard of stores: generated from the table of metrics, and true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/store-alerts.yml"
UNIT_TESTS = Path(__file__).with_name("store_alerts_test.yml")


def promtool(*words: str | Path) -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not here (Debian: prometheus)")
    done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.delitem(sys.modules, "store_queries", raising=False)
    from store_queries import Queries

    return Queries('job="verbena"')


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    for rules in sorted(RULES.parent.glob("*alerts.yml")):
        assert "rules found" in promtool("check", "rules", rules)
    assert "2 rule files found" in promtool("check", "config", RULES.with_name("prometheus.yml"))


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    """The unit tests of Prometheus, in which every alert has its case."""
    promtool("test", "rules", UNIT_TESTS)
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    fired = {
        case["alertname"]
        for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fired == {rule["alert"] for rule in rules}


def test_every_expression_is_of_stores_scraped_by_the_job() -> None:
    """So that a Redis server with redis_exporter in the same Prometheus raises no alert of ours."""
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        selectors = re.findall(r"\b(?:redis|verbena)_\w+(\{[^}]*\})?", rule["expr"])
        assert selectors
        assert all('job="verbena"' in selector for selector in selectors), rule["expr"]
    panels = json.loads((ROOT / "deploy/grafana/verbena-store.json").read_text())["panels"]
    for target in (target for panel in panels for target in panel["targets"]):
        assert 'instance=~"$instance"' in target["expr"]


def test_a_query_of_what_the_table_lacks_is_refused(queries: Any) -> None:
    assert queries.select("redis_up") == 'redis_up{job="verbena"}'
    with pytest.raises(KeyError):
        queries.select("redis_no_such_metric")
    with pytest.raises(ValueError, match="no label db"):
        queries.select("redis_up", db="db0")
    with pytest.raises(ValueError, match="no counter"):
        queries.rate("redis_up")
