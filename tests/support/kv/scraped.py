"""/metrics of a node, as Prometheus reads it."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """The samples of a page, by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._values[name, frozenset(labels.items())]

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """Returns the values of a metric by the values of its labels, sorted by label."""
        return {
            tuple(value for _, value in sorted(labels)): found
            for (series, labels), found in self._values.items()
            if series == name
        }


def scrape(page: str) -> Scraped:
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=20) as answer:
        return Scraped(answer.read().decode())


def until(page: str, holds: Callable[[Scraped], object]) -> Scraped:
    """Scrapes until the condition holds."""
    deadline = time.monotonic() + 30
    while not holds(now := scrape(page)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return now
