"""The attacks on sessions, as data: each one must fail on every wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from support.security import hello_attacks as hello
from support.security import memory_attacks as memory
from support.security.attack_setup import AttackSetup

WIRES = ("shm", "iwarp", "quic", "ibv")
NO_HELLO_OF_ITS_OWN = "sessions name no address of their own on this wire"


@dataclass(frozen=True)
class Attack:
    """`run` fails if the attack succeeds. `not_applicable`: the reason, by wire."""

    name: str
    run: Callable[[AttackSetup], Awaitable[None]]
    not_applicable: Mapping[str, str] = field(default_factory=dict)


ATTACKS = {
    attack.name: attack
    for attack in (
        Attack("no proof", hello.no_proof),
        Attack("wrong secret", hello.wrong_secret),
        Attack("replayed hello", hello.replayed_hello),
        Attack("wire stripped from the hello", hello.stripped_hello),
        Attack("wire stripped from the welcome", hello.stripped_welcome),
        Attack("authentication stripped from the challenge", hello.stripped_authentication),
        Attack("weaker wire than demanded", hello.weaker_wire),
        Attack("answer of another wire", hello.answer_of_another_wire),
        Attack("another session's token", hello.another_sessions_token),
        Attack("token after use", hello.token_after_use),
        Attack("token of another wire", hello.token_of_another_wire),
        Attack("another session's key: READ", memory.another_sessions_key_read),
        Attack("another session's key: WRITE", memory.another_sessions_key_write),
        Attack("another session's key: atomic", memory.another_sessions_key_atomic),
        Attack("key after revocation", memory.key_after_revocation),
        Attack("key after the session's close", memory.key_after_close),
        Attack("key after the region is gone", memory.key_after_the_region),
        Attack("guessed key", memory.guessed_key),
        Attack("saved layout", memory.saved_layout),
        Attack("self-declared node", hello.self_declared_node),
        Attack(
            "self-declared GID",
            hello.self_declared_gid,
            {"iwarp": NO_HELLO_OF_ITS_OWN, "quic": NO_HELLO_OF_ITS_OWN, "ibv": NO_HELLO_OF_ITS_OWN},
        ),
    )
}
