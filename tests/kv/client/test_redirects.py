"""How a client finds its way in a cluster, without any node: commands and replies go through route()."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from verbena.kv.client.redirects import HOME, LoadMap, Pause, Requests, SlotMap, by_slot, route
from verbena.kv.commands.replies import CommandError
from verbena.shards.slots import SLOTS, slot_of

SHARDS = [
    # As RESP2 sends a map.
    [b"slots", [0, 8191], b"nodes", [[b"ip", b"a", b"port", 1, b"role", b"master", b"sessions", b"a:7"]]],
    {
        b"slots": [8192, SLOTS - 1],
        b"nodes": [
            {b"ip": b"b", b"port": 1, b"role": b"master", b"sessions": b"b:7"},
            {b"ip": b"c", b"port": 1, b"role": b"replica", b"sessions": b"c:7"},
        ],
    },
]
LOW, HIGH = "foo{06S}", "foo"
assert slot_of(LOW.encode()) < 8192 <= slot_of(HIGH.encode())


class Nodes:
    """Answers requests by a function of node and command, and records them."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.sent: list[tuple[str, list[Any]]] = []
        self.pauses = 0

    def run(self, slots: SlotMap, commands: Sequence[Any], ends: float = math.inf, first: Any = None) -> Any:
        steps = route(slots, commands, ends, first)
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = None
                if isinstance(step, Requests):
                    self.sent += [(node, list(map(list, words))) for node, words in step.groups]
                    answer = [[self.reply(node, list(c)) for c in words] for node, words in step.groups]
                elif isinstance(step, LoadMap):
                    slots.load(SHARDS)
                else:
                    assert isinstance(step, Pause)
                    self.pauses += 1
        except StopIteration as end:
            return end.value


def loaded() -> SlotMap:
    slots = SlotMap()
    slots.load(SHARDS)
    return slots


def test_commands_go_to_the_primary_of_their_key() -> None:
    nodes = Nodes(lambda node, words: f"{node} {words[1]}")
    assert nodes.run(loaded(), [["GET", LOW], ["GET", HIGH], ["SET", LOW, 1]]) == [
        f"a:7 {LOW}",
        f"b:7 {HIGH}",
        f"a:7 {LOW}",
    ]
    assert len(nodes.sent) == 2  # one message for each node


def test_a_command_without_a_known_key_goes_home_and_is_learned_from_its_redirection() -> None:
    def reply(node: str, words: list[Any]) -> Any:
        return "done" if node == "b:7" else CommandError(f"MOVED {slot_of(HIGH.encode())} b:1")

    slots, nodes = loaded(), Nodes(reply)
    assert nodes.run(slots, [["LPUSH", HIGH, "x"]]) == ["done"]
    assert [node for node, _ in nodes.sent] == [HOME, "b:7"]
    assert nodes.run(slots, [["lpush", HIGH, "y"]]) == ["done"]
    assert [node for node, _ in nodes.sent] == [HOME, "b:7", "b:7"]
    assert slots.redirects == 1


def test_what_has_run_is_not_run_again() -> None:
    """Of the commands whose replies are known, only those that were redirected are sent."""
    nodes = Nodes(lambda node, words: node)
    moved = CommandError(f"MOVED {slot_of(HIGH.encode())} b:1")
    commands = [["INCR", LOW], ["INCR", HIGH], ["PING"]]
    assert nodes.run(SlotMap(), commands, first=[1, moved, "PONG"]) == [1, "b:7", "PONG"]
    assert nodes.sent == [("b:7", [["INCR", HIGH]])]


def test_ask_is_followed_once_and_changes_no_slot() -> None:
    def reply(node: str, words: list[Any]) -> Any:
        if node == "b:7":
            return CommandError(f"ASK {slot_of(HIGH.encode())} a:1")
        return "OK" if words == ["ASKING"] else "value"

    slots, nodes = loaded(), Nodes(reply)
    assert nodes.run(slots, [["GET", HIGH]]) == ["value"]
    assert nodes.sent[-1] == ("a:7", [["ASKING"], ["GET", HIGH]])
    nodes.run(slots, [["GET", HIGH]])
    assert [node for node, _ in nodes.sent] == ["b:7", "a:7"] * 2


def test_a_transaction_stays_together() -> None:
    """It is repeated as a whole: its EXEC was refused."""

    def reply(node: str, words: list[Any]) -> Any:
        if node == "a:7":
            return {
                "MULTI": "OK",
                "SET": CommandError(f"MOVED {slot_of(LOW.encode())} b:1"),
                "EXEC": CommandError("EXECABORT"),
            }[words[0]]
        return [True] if words[0] == "EXEC" else "OK"

    nodes = Nodes(reply)
    assert nodes.run(loaded(), [["MULTI"], ["SET", LOW, 1], ["EXEC"]]) == ["OK", "OK", [True]]
    assert [node for node, _ in nodes.sent] == ["a:7", "b:7"]


def test_tryagain_is_repeated_until_the_end() -> None:
    """After a pause, and with a new map; when the time is over the reply is the result."""
    replies = [CommandError("TRYAGAIN"), CommandError("CLUSTERDOWN"), "value"]
    slots, nodes = loaded(), Nodes(lambda node, words: replies.pop(0))
    assert nodes.run(slots, [["GET", LOW]]) == ["value"]
    assert (nodes.pauses, slots.retries) == (2, 2)
    (last,) = Nodes(lambda node, words: CommandError("TRYAGAIN")).run(loaded(), [["GET", LOW]], ends=0)
    assert last.text == "TRYAGAIN"


def test_keys_are_split_by_slot() -> None:
    assert list(by_slot(["{a}1", "b", b"{a}2"]).values()) == [[0, 2], [1]]
