"""The server: an engine, the commands that Python runs for it, and the parts that both need."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from verbena import _native
from verbena._forks import OfProcess, keep_in_child
from verbena.errors import VerbenaError
from verbena.kv import commands
from verbena.kv.acl import Acl
from verbena.kv.commands.declare import COMMANDS, Command, find
from verbena.kv.commands.replies import NO_REPLY, CommandError, Reply
from verbena.kv.server.blocked_clients import Blocking
from verbena.kv.server.call import Call
from verbena.kv.server.client_table import Clients
from verbena.kv.server.clients import Client
from verbena.kv.server.counters import Stats
from verbena.kv.server.execution import Execution
from verbena.kv.server.parameters import Parameters, Targets
from verbena.kv.server.pubsub import PubSub
from verbena.kv.server.services import Services
from verbena.kv.server.tracking import Messages
from verbena.kv.storage.database import Database

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.kv.server.call import Database as Keys
    from verbena.kv.values.collections import Value

log = logging.getLogger("verbena.kv")

# These run at once within a transaction; all others are queued for EXEC.
_NOT_QUEUED = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
_FOR_SUBSCRIBERS = frozenset(
    [
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "PSUBSCRIBE",
        "PUNSUBSCRIBE",
        "SSUBSCRIBE",
        "SUNSUBSCRIBE",
        "PING",
        "QUIT",
        "RESET",
    ]
)
_OF_REPLICAS = frozenset({"PSYNC", "REPLCONF"})
_WITH_OTHER_DATABASE = frozenset({"COPY", "MOVE"})
LOADING = "LOADING Verbena is loading the dataset in memory"
OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
NO_MEMORY = "OOM command failed: not enough memory"


class Server(OfProcess):
    """An engine with its commands, in one process. `memory` allocates the engine's chunks; None: from the
    heap.

    Parts take what they need from here: `clients`, `acl`, `parameters` (CONFIG), `stats`, `pubsub`,
    `blocking`, `databases`, `execution` (the running command), `services` (persistence, replication, cluster,
    sessions)."""

    def __init__(self, *, databases: int = 16, memory: Callable[[int], Buffer] | None = None) -> None:
        commands.load()
        self.engine = _native.kv.Engine(databases, memory)
        self.execution = Execution()
        self.acl = Acl()
        self.stats = Stats(self.engine)
        self.clients = Clients(self.engine, self.acl, self.run)
        self.pubsub = PubSub(self.clients)
        self.blocking = Blocking(self.engine, self.execution)
        self.services = Services(shut_down=self.engine.stop)
        self.parameters = Parameters(
            Targets(self.engine, self.acl, self.clients, self.pubsub, self.stats, self.services),
            databases=databases,
        )
        self.databases = [
            Database(
                self.engine.database(index),
                engine=self.engine,
                execution=self.execution,
                pubsub=self.pubsub,
                blocking=self.blocking,
            )
            for index in range(databases)
        ]
        self._thread: threading.Thread | None = None
        self.engine.set_handler(self)
        keep_in_child(self)

    def start(self) -> None:
        """Runs the engine on a thread of its own."""
        self._check_process("start")
        self._thread = threading.Thread(target=self.engine.run, name="verbena-kv", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the engine's thread runs. From any thread."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def stop(self) -> None:
        if self._inherited:
            return
        self.engine.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Stops, and breaks the cycle of references between the engine and this object, so that both are
        freed. Does nothing in a forked child."""
        if self._inherited:
            return
        self.stop()
        self.engine.set_handler(None)
        if self.services.sessions is not None:
            self.services.sessions.close()

    # The replication backlog: for replicas, and for slots that move

    def follow(
        self, slots: Iterable[int] | None = None, from_lsn: int | None = None
    ) -> _native.kv.BacklogReader:
        """Reads the log from an LSN on, or from now on; `slots`: records of these alone. ValueError: the
        backlog does not reach back to that LSN."""
        self.execution.logging = True  # first, so that the effects of a command are logged completely
        return self.engine.read_backlog(slots, from_lsn)

    def base_copy(self, slots: Iterable[int] | None = None) -> _native.kv.BaseCopy:
        """Begins a copy of all keys, or of some slots; its take_reader() continues with the log."""
        self.execution.logging = True
        return self.engine.base_copy(slots)

    # Called by the engine, on its thread

    def run(self, number: int, argv: list[bytes]) -> None:
        client = self.clients.ensure(number)
        clients = self.clients
        before, clients.current = clients.current, client
        quiet = client.replies_off or client.skip_replies == 1
        start = client.native.pending_out if quiet else 0
        try:
            reply = self.execute(client, argv)
            if reply is not NO_REPLY:
                self.reply(client, reply)
        finally:
            clients.current = before
        if quiet and (client.replies_off or client.skip_replies):
            client.native.take_out(start)
        if client.skip_replies:
            client.skip_replies -= 1
            client.update_dispatch()
        if client.tracking is not None and client.queue is None and argv[0].upper() != b"CLIENT":
            client.tracking.caching = False  # it applied to this command only
        if clients.pushes:
            pushes, clients.pushes = clients.pushes, []
            client.native.write(b"".join(pushes))
        if self.blocking.by_key:
            self.blocking.serve()

    def reply(self, client: Client, reply: Reply) -> None:
        """Sends a reply, or an error in its place if it does not fit into memory."""
        try:
            client.native.reply(reply)
        except MemoryError:
            self.stats.failed(NO_MEMORY)
            client.native.reply(CommandError(NO_MEMORY))

    def opened(self, number: int) -> None:
        self.clients.ensure(number)

    def closed(self, number: int) -> None:
        client = self.clients.remove(number)
        if client is not None:
            self.blocking.forget(number)
            self.pubsub.forget(client)
            self.clients.tracking.stop(client)
            self.clients.pause.forget(number)
            self.clients.monitors.forget(client)
            if self.services.cluster is not None:
                self.services.cluster.guard.forget(number)
            if client.is_replica:
                self.clients.rights_changed()

    def watched_changed(self, numbers: list[int]) -> None:
        for number in numbers:
            client = self.clients.get(number)
            if client is not None:
                client.watch_failed = True

    def invalidated(self, messages: Messages) -> None:
        self.clients.tracking.deliver(messages)

    def notify(self, database: int, kind: str, event: str, key: bytes) -> None:
        """A change of a key, for keyspace notifications. `kind` "": the class that the event belongs to."""
        self.pubsub.notify(database, kind, event, key)

    def tick(self) -> None:
        now_ms = self.engine.now_ms
        self.blocking.expire(now_ms)
        self.clients.pause.tick(now_ms)
        self.stats.tick()
        self.clients.limits.tick(now_ms)
        for client, ns, unix_ms, argv in self.engine.take_slow():
            self._note_time(self.clients.get(client), argv, ns, unix_ms)
        for function in self.services.on_tick:
            function()

    def dump(self, value: Value) -> bytes:
        """Returns a value's bytes, for a snapshot."""
        from verbena.kv.storage.serial import dump

        return dump(value)

    # Running commands

    def execute(self, client: Client, argv: list[bytes]) -> Reply:
        """Checks and runs a client's command; its reply, or NO_REPLY if it was written already or comes
        later."""
        command = find(argv)
        if command is None:
            return self.reject(client, None, unknown_command(argv))
        if (command.arity > 0 and len(argv) != command.arity) or len(argv) < -command.arity:
            name = command.name.lower().replace(" ", "|")
            return self.reject(
                client, command, CommandError(f"ERR wrong number of arguments for '{name}' command")
            )
        error = self._check(client, command, argv)
        if error is not None:
            return self.reject(client, command, error)
        cluster = self.services.cluster
        if cluster is not None:
            elsewhere = cluster.guard.check(client, command, argv)
            if elsewhere is not None:
                return elsewhere
        if self.clients.pause.until_ms and self.clients.pause.holds(client, command, argv):
            return NO_REPLY
        if client.queue is not None and command.name not in _NOT_QUEUED:
            client.queue.append(argv)
            return "QUEUED"
        return self.perform(client, command, argv)

    def reject(self, client: Client, command: Command | None, error: CommandError) -> CommandError:
        """Counts an error that came before the command ran; it makes a transaction fail."""
        if client.queue is not None:
            client.queue_failed = True
        if command is not None:
            self.stats.of(command.name).rejected += 1
        self.stats.failed(error.text)
        return error

    def _check(self, client: Client, command: Command, argv: list[bytes]) -> CommandError | None:
        if not client.authenticated and "no_auth" not in command.flags:
            if command.name in _OF_REPLICAS:  # the log of refusals shows replicas without a password too
                self.acl.note(client, "command", command.name.lower().encode(), self.engine.now_ms)
            return self._denied(client, command, CommandError("NOAUTH Authentication required."))
        if not client.user.may_do_all:
            denied = self.acl.check(client, command, argv, self.engine.now_ms)
            if denied is not None:
                return self._denied(client, command, denied)
        if self.engine.loading and "loading" not in command.flags:
            return CommandError(LOADING)
        if command.name not in _FOR_SUBSCRIBERS and client.is_resp2_subscriber:
            name = command.name.lower().replace(" ", "|")
            return CommandError(
                f"ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
                "are allowed in this context"
            )
        if client.queue is not None:
            if "no_multi" in command.flags:
                return CommandError("ERR Command not allowed inside a transaction")
            if "denyoom" in command.flags and not self.engine.make_room():
                return CommandError(OUT_OF_MEMORY)
        return None

    def _denied(self, client: Client, command: Command, error: CommandError) -> CommandError:
        if command.name in _OF_REPLICAS and self.services.replication is not None:
            self.services.replication.log_refusal(client.native.address, error.text)
        return error

    def perform(self, client: Client, command: Command, argv: list[bytes]) -> Reply:
        """Runs a command without checking the client's state."""
        if self.clients.monitors and "skip_monitor" not in command.flags and "admin" not in command.flags:
            self.clients.monitors.write(client, argv)
        if command.function is None:
            if command.name == "PING" and client.is_resp2_subscriber:
                return [b"pong", argv[1] if len(argv) > 1 else b""]
            client.native.run_native(argv)
            if client.tracking is not None:
                self.clients.tracking.remember(client, client.tracking, command, argv)
            return NO_REPLY
        native = client.native
        native.last_command = command.name
        if command.is_write and (why := self.engine.refusal):
            return self.reject(client, command, CommandError(why))
        if "denyoom" in command.flags and not self.engine.make_room():
            return self.reject(client, command, CommandError(OUT_OF_MEMORY))
        database = self.databases[native.database]
        execution = self.execution
        execution.command, execution.verbatim = command, False
        started = time.perf_counter_ns()
        try:
            reply: Reply = command.function(
                Call(self, client, cast("Keys", database), argv, self.engine.now_ms),
                *argv[1 + command.name.count(" ") :],
            )
        except CommandError as error:
            reply = error
        except Exception as error:
            # The client gets a reply in any case, and a transaction gets all of its replies.
            no_memory = isinstance(error, MemoryError) or (
                isinstance(error, VerbenaError) and error.code == "no_memory"
            )
            reply = CommandError(NO_MEMORY)
            if not no_memory:
                log.exception("the command %s failed", command.name)
                reply = CommandError("ERR internal error: the command failed, see the log")
            if command.is_write and execution.logging:
                self._log_images(command, argv, database)
        execution.command = None
        if execution.verbatim:
            execution.verbatim = False
            self.engine.log(database.index, argv)
        if client.tracking is not None:
            self.clients.tracking.remember(client, client.tracking, command, argv)
        took = time.perf_counter_ns() - started
        stats = self.stats.of(command.name)
        stats.add(took)
        if isinstance(reply, CommandError):
            stats.failed += 1
            self.stats.failed(reply.text)
        if took >= self.engine.slow_ns and "skip_slowlog" not in command.flags:
            self._note_time(client, argv, took, self.engine.now_ms)
        return reply

    def _log_images(self, command: Command, argv: list[bytes], database: Database) -> None:
        """Logs the keys of a command that has failed, and may have changed them, as they are now: otherwise
        log and replicas would differ from the keys. If that is not possible, the process ends."""
        self.execution.verbatim = False
        databases = self.databases if command.name in _WITH_OTHER_DATABASE else [database]
        try:
            positions = command.key_positions(argv)
            if command.explicit and not positions:
                raise LookupError("it names no keys")
            for at in positions:
                for changed in databases:
                    changed.log_image(argv[at])
        except Exception as error:
            _native.end_process(f"logging the keys of {command.name}", repr(error))

    def _note_time(self, client: Client | None, argv: list[bytes], ns: int, unix_ms: int) -> None:
        us = ns // 1000
        slowlog = self.stats.slowlog
        if 0 <= slowlog.threshold_us <= us:
            slowlog.add(client, argv, us, unix_ms // 1000)
        command = find(argv)
        fast = command is not None and "fast" in command.flags
        self.stats.latency.add("fast-command" if fast else "command", us // 1000)


def unknown_command(argv: list[bytes]) -> CommandError:
    name = argv[0][:128].decode("utf-8", "replace")
    same = [known for known in COMMANDS if known.startswith(name.upper() + " ")]
    if same and len(argv) > 1:
        return CommandError(
            f"ERR unknown subcommand '{argv[1][:128].decode('utf-8', 'replace')}'. Try {name.upper()} HELP."
        )
    if same:
        return CommandError(f"ERR wrong number of arguments for '{name.lower()}' command")
    arguments = ""
    for word in argv[1:]:
        if len(arguments) >= 128:
            break
        arguments += f"'{word[: 128 - len(arguments)].decode('utf-8', 'replace')}' "
    return CommandError(f"ERR unknown command '{name}', with args beginning with: {arguments}")
