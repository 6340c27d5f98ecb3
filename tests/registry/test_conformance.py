"""The specification's own conformance suite, where its program is at hand: `tools/conformance.sh` builds it
from the specification's repository and names it in OCI_CONFORMANCE. Our own tests cover the same ground;
this is the judge from outside."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.registry.process import registry_process

SUITE = os.environ.get("OCI_CONFORMANCE", "")
EVERYTHING = (
    *(
        "API_BLOBS_ATOMIC",
        "API_BLOBS_DIGEST_HEADER",
        "API_BLOBS_UPLOAD_CANCEL",
        "API_MANIFESTS_DIGEST_HEADER",
    ),
    *("API_MANIFESTS_TAG_PARAM", "DATA_SPARSE"),
)


@pytest.mark.skipif(not SUITE, reason="OCI_CONFORMANCE names no program")
def test_nothing_fails_and_nothing_is_skipped(tmp_path: Path) -> None:
    with registry_process(tmp_path / "data", "--registry-sparse-manifests") as server:
        environment = {
            **{"PATH": os.environ["PATH"], "OCI_REGISTRY": server.address, "OCI_TLS": "disabled"},
            **{"OCI_VERSION": "1.1", "OCI_RESULTS_DIR": str(tmp_path / "results")},
            **{f"OCI_{name}": "true" for name in EVERYTHING},
        }
        done = subprocess.run(
            [SUITE], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=55, check=False
        )
    counts = {
        words[0].rstrip("."): int(words[-1])
        for line in done.stdout.splitlines()
        if len(words := line.replace(":", " ").split()) == 2 and words[1].isdigit()
    }
    print("", *(f"{name.lower()}: {count}" for name, count in counts.items()), sep="\n  ")
    assert counts["Pass"] == counts["Total"] > 900, done.stdout
    assert done.returncode == 0
