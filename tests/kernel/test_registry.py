"""Registry nodes that give blobs to each other over a real device: RDMA WRITE into the asker's window."""

from __future__ import annotations

from pathlib import Path

from support.registry.processes import Processes

OPTIONS = {
    **{"wires": ["ibv"], "devices": {"ibv": "rxe0"}, "listen": "10.0.2.15:0"},
    **{"secret": "correct horse battery staple", "piece_timeout_s": 60.0},
}


def test_blobs_go_from_node_to_node(tmp_path: Path) -> None:
    """Two processes, pieces and a short blob, both ways; no other wire is allowed."""
    with Processes(tmp_path, **OPTIONS) as nodes:
        one, two = nodes.add(), nodes.add()
        two.ask("peers", count=1)
        for seed, length in ((1, 9_000_001), (2, 70_000)):
            digest = one.ask("push", seed=seed, length=length)["digest"]
            pulled = two.ask("pull", digest=digest)
            assert (pulled.get("length"), pulled.get("right")) == (length, True), two.ask("figures")
        two.ask("settled")
        back = two.ask("push", seed=3, length=5_000_000)["digest"]
        assert one.ask("pull", digest=back).get("right") is True, one.ask("figures")
        assert two.ask("figures")["wires"] == ["ibv"]
        assert one.ask("figures")["sent"] == 9_070_001


def test_a_third_node_takes_over_from_one_that_is_killed(tmp_path: Path) -> None:
    with Processes(tmp_path, **OPTIONS) as nodes:
        one = nodes.add()
        digest = one.ask("push", seed=4, length=12 << 20)["digest"]
        two = nodes.add()
        assert two.ask("pull", digest=digest)["right"] is True
        two.ask("settled")
        three = nodes.add()
        three.ask("peers", count=2)
        three.begin("pull", digest=digest)
        one.kill()
        assert three.answer().get("right") is True
