"""What a hostile process can do, by place and wire, and the tests that show it: the contents of
docs/reference/hostile-processes.md."""

from __future__ import annotations

from dataclasses import dataclass

PROCESSES = "tests/security/test_hostile_processes.py"
PLACES = "tests/security/test_hostile_places.py"
MATRIX = "tests/security/test_red_team.py::test_an_attack_fails_on_every_wire"
PEER = "tests/security/test_shm_peer.py"
LEASES = "tests/security/test_store_leases.py"
KERNEL = "tests/kernel/test_red_team.py"
KERNEL_MATRIX = f"{KERNEL}::test_an_attack_fails_on_ibv"


@dataclass(frozen=True)
class Cell:
    """A statement, and the tests that show it, as file::name."""

    statement: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where the hostile process is, and its cells by wire."""

    title: str
    cells: dict[str, Cell]


def _same(statement: str, **tests: str) -> dict[str, Cell]:
    return {wire: Cell(statement, (test,)) for wire, test in tests.items()}


_REFUSED = "A name or a key that another session has is refused, and an access with it ends the link."
_REVOKED = "Nothing: its keys are refused from the revocation on."
_NO_SESSION = (
    "A link without a session is refused. Without a secret, its uid is the proof: it may open a session."
)
_OF_ITS_USER = "The rights of a process of its uid."
_UNREACHABLE = "It does not reach a port on the loopback. On other addresses it is another machine."
_NOTHING = "No session: a node that other machines can reach demands a secret or certificates."
_ITS_OWN = "A session: it reads and writes what is lent to that session, and nothing that is lent to others."
_NEEDS_SECRET = "No session without the secret. With it, it reads and writes what is lent to its session."

TABLE = (
    Place(
        "same uid, without a session",
        {
            "shm": Cell(
                "It connects to the node's socket and learns that a node is there: no key, no address, no"
                " memory. Without a secret, its uid is the proof: it may open a session.",
                (
                    f"{PROCESSES}::test_a_link_without_a_session_gets_a_greeting_only",
                    f"{PEER}::test_attaching_to_queue_pairs_gives_no_memory",
                    f"{PEER}::test_a_gid_counts_only_for_the_process_at_its_address",
                    f"{PROCESSES}::test_without_a_secret_the_uid_is_the_proof",
                ),
            ),
            "iwarp": Cell(_NO_SESSION, (MATRIX, f"{PROCESSES}::test_without_a_secret_the_uid_is_the_proof")),
            "quic": Cell(
                _NO_SESSION,
                (
                    MATRIX,
                    f"{PLACES}::test_a_container_in_the_same_network_namespace_is_a_process_of_its_user",
                ),
            ),
            "ibv": Cell(
                "A link without a session is refused. Without the secret it gets no session.",
                (KERNEL_MATRIX, f"{KERNEL}::test_a_container_needs_the_secret"),
            ),
        },
    ),
    Place(
        "same uid, a session of restricted rights",
        {
            "shm": Cell(
                "It sees which keys exist, and maps only memory that it has resolved. A name or a key that"
                " another session has is refused. Of a store it maps nothing unless it may read every key.",
                (
                    f"{PROCESSES}::test_a_session_sees_which_keys_exist_but_maps_no_memory_of_others",
                    f"{PEER}::test_a_peer_maps_no_memory_that_was_lent_to_another_session",
                    f"{PEER}::test_memory_that_is_only_read_cannot_be_written_by_the_peer",
                    f"{LEASES}::test_a_saved_layout_is_worthless_to_another_session",
                    MATRIX,
                ),
            ),
            "iwarp": Cell(
                _REFUSED,
                (MATRIX, f"{LEASES}::test_a_saved_layout_is_worthless_to_another_session"),
            ),
            **_same(_REFUSED, quic=MATRIX, ibv=KERNEL_MATRIX),
        },
    ),
    Place(
        "same uid, after its rights have ended",
        {
            "shm": Cell(
                "It reads what was lent to it, later values included, while it keeps the mapping: the kernel"
                " cannot take a mapping back. Of a store that is until the store restarts. It never writes"
                " what it could only read. Memory that was lent to its session for writing stays writable for"
                " it, and is used for no other session. New keys are refused.",
                (
                    f"{PROCESSES}::test_a_kept_mapping_of_readable_memory_shows_later_values",
                    f"{PROCESSES}::test_a_user_whose_rights_ended_reads_the_store_until_it_restarts",
                    f"{PROCESSES}::test_a_kept_mapping_of_memory_for_writing_stays_writable",
                    f"{PEER}::test_memory_of_one_session_shares_no_arena_with_others",
                    MATRIX,
                ),
            ),
            **_same(_REVOKED, iwarp=MATRIX, quic=MATRIX),
            "ibv": Cell(
                f"{_REVOKED} On devices without memory windows, such as Soft-iWARP, a key is valid on every"
                " queue pair of the node until it is revoked.",
                (
                    KERNEL_MATRIX,
                    f"{KERNEL}::test_without_memory_windows_a_key_is_valid_for_all_until_it_is_revoked",
                ),
            ),
        },
    ),
    Place(
        "another uid",
        {
            "shm": Cell(
                "The socket refuses it, with the secret too: its sessions use another wire.",
                (
                    f"{PLACES}::test_the_shm_socket_refuses_another_user",
                    f"{PLACES}::test_another_user_with_the_secret_gets_a_session_but_no_shared_memory",
                ),
            ),
            **{
                wire: Cell(
                    _NEEDS_SECRET,
                    (
                        f"{PLACES}::test_another_user_gets_no_session_without_the_secret",
                        f"{PLACES}::test_another_user_with_the_secret_gets_a_session_but_no_shared_memory",
                    ),
                )
                for wire in ("iwarp", "quic")
            },
            **_same(_NEEDS_SECRET, ibv=f"{KERNEL}::test_another_user_needs_the_secret"),
        },
    ),
    Place(
        "another container, same uid, the network namespace of the node",
        {
            "shm": Cell(
                f"{_OF_ITS_USER} It maps memory for reading only where that is what was lent.",
                (
                    f"{PLACES}::test_a_container_in_the_same_network_namespace_is_a_process_of_its_user",
                    f"{PLACES}::test_a_container_maps_readable_memory_for_reading_only",
                ),
            ),
            **_same(
                _OF_ITS_USER,
                iwarp=f"{PLACES}::test_a_container_in_the_same_network_namespace_is_a_process_of_its_user",
                quic=f"{PLACES}::test_a_container_in_the_same_network_namespace_is_a_process_of_its_user",
            ),
            **_same(_NEEDS_SECRET, ibv=f"{KERNEL}::test_a_container_needs_the_secret"),
        },
    ),
    Place(
        "another container, same uid, another network namespace",
        {
            "shm": Cell(
                "It does not reach the node's socket.",
                (f"{PLACES}::test_a_container_in_another_network_namespace_does_not_reach_the_loopback",),
            ),
            **_same(
                _UNREACHABLE,
                iwarp=f"{PLACES}::test_a_container_in_another_network_namespace_does_not_reach_the_loopback",
                quic=f"{PLACES}::test_a_container_in_another_network_namespace_does_not_reach_the_loopback",
            ),
            **_same(
                "It does not reach the node, unless its network does.",
                ibv=f"{KERNEL}::test_a_container_needs_the_secret",
            ),
        },
    ),
    Place(
        "another machine, without the secret",
        {
            "shm": Cell(
                "The wire does not leave the host: it is not offered.",
                (f"{PLACES}::test_another_machine_with_the_secret_gets_what_is_lent_to_its_session",),
            ),
            **{
                wire: Cell(
                    _NOTHING,
                    (
                        f"{PLACES}::test_another_machine_without_the_secret_gets_no_session",
                        f"{PLACES}::test_a_node_without_a_secret_does_not_listen_to_other_machines",
                    ),
                )
                for wire in ("iwarp", "quic")
            },
            **_same("No session, and no link.", ibv=KERNEL_MATRIX),
        },
    ),
    Place(
        "another machine, with the secret",
        {
            "shm": Cell(
                "The wire is not offered: its sessions use another one.",
                (f"{PLACES}::test_another_machine_with_the_secret_gets_what_is_lent_to_its_session",),
            ),
            **_same(
                _ITS_OWN,
                iwarp=f"{PLACES}::test_another_machine_with_the_secret_gets_what_is_lent_to_its_session",
                quic=f"{PLACES}::test_another_machine_with_the_secret_gets_what_is_lent_to_its_session",
                ibv=f"{KERNEL}::test_a_session_is_refused_the_regions_of_others",
            ),
        },
    ),
)

# What no wire can prevent, or what the wires have in common.
LIMITS = (
    Cell(
        "A process of the same uid reads and writes the node's private memory where the kernel lets it trace"
        " the node: with Yama's `ptrace_scope` at 0 or without Yama, or with CAP_SYS_PTRACE.",
        (f"{PROCESSES}::test_the_kernel_may_let_it_trace_the_node",),
    ),
    Cell(
        "A process of the same uid opens the node's shared memory through `/proc/PID/fd`, whatever Yama"
        " says. It reads all of it, and writes what is lent for writing; it cannot write what is lent for"
        " reading.",
        (f"{PROCESSES}::test_the_kernel_lets_it_open_the_nodes_descriptors",),
    ),
    Cell(
        "A process of the same uid can end the node.",
        (f"{PROCESSES}::test_it_can_end_the_node",),
    ),
    Cell(
        "A process of the same uid reads the node's files, such as the log and the snapshots of a store.",
        (f"{PROCESSES}::test_it_can_read_the_files_of_its_user",),
    ),
    Cell(
        "Another uid, and a container with its own PID namespace, can do none of these.",
        (
            f"{PLACES}::test_another_user_cannot_trace_the_node_or_open_its_descriptors",
            f"{PLACES}::test_a_container_cannot_trace_or_end_the_node",
        ),
    ),
    Cell(
        "A session of a process that is stopped, or that blocks its descriptors, delays no other session.",
        (f"{PEER}::test_a_hostile_peer_cannot_block_the_doorbell",),
    ),
    Cell(
        "A process on the path between two machines reads what `iwarp` carries without TLS.",
        (f"{PLACES}::test_a_process_on_the_path_reads_iwarp_without_tls",),
    ),
)
