"""The store's program: answers what native code does not, and knows what is going on."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from verbena import _native
from verbena.errors import VerbenaError
from verbena.kv import commands
from verbena.kv.acl import Acl
from verbena.kv.commands.declare import COMMANDS, Command, find
from verbena.kv.commands.replies import NO_REPLY, CommandError, Reply
from verbena.kv.server import notifications
from verbena.kv.server.blocked_clients import Blocking
from verbena.kv.server.call import Call
from verbena.kv.server.clients import Client
from verbena.kv.server.counters import Figures
from verbena.kv.server.limits import OutputLimits
from verbena.kv.server.monitor import Monitors
from verbena.kv.server.parameters import Parameters
from verbena.kv.server.pause import Pause
from verbena.kv.server.pubsub import PubSub
from verbena.kv.server.slowlog import LatencyMonitor, SlowLog
from verbena.kv.server.tracking import Messages, Tracking
from verbena.kv.storage.database import Database

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.kv.cluster import ClusterNode
    from verbena.kv.frontends.sessions import Gateway
    from verbena.kv.replication.replication import Replication
    from verbena.kv.server.call import Database as Keys
    from verbena.kv.storage.persistence import Persistence
    from verbena.kv.values.collections import Value

log = logging.getLogger("verbena.kv")

# These run at once within a transaction; whatever else waits for EXEC.
_NOT_QUEUED = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
_FOR_LISTENERS = frozenset(
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
LOADING = "LOADING Verbena is loading the dataset in memory"
OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."


class Server:
    """An engine with its commands. `memory`: where chunks of memory come from; None: the process's own."""

    def __init__(self, *, databases: int = 16, memory: Callable[[int], Buffer] | None = None) -> None:
        commands.load()
        self.engine = _native.kv.Engine(databases, memory)
        self.databases = [Database(self, self.engine.database(i)) for i in range(databases)]
        self.clients: dict[int, Client] = {}
        self.acl = Acl()
        self.blocking = Blocking(self)
        self.pubsub = PubSub(self)
        self.tracking = Tracking(self)
        self.figures = Figures(self.engine)
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.monitors = Monitors(self)
        self.pause = Pause(self)
        self.limits = OutputLimits(self)
        self.parameters = Parameters(self)
        self.started = time.time()
        self.config_file = ""
        self.run_id = secrets.token_hex(20)
        self.logging = False  # effects are written down
        self.notified: frozenset[str] = frozenset()  # classes of events: notify-keyspace-events
        self.running: Command | None = None
        self.verbatim = False  # the running command is to be written down as it came
        self.in_transaction = False
        self.gateway: Gateway | None = None
        self.current: Client | None = None  # whose command runs
        self.pushes: list[bytes] = []  # messages to it: not in the middle of a reply
        # Where others put theirs. Sections of INFO by name: fields with their values.
        self.info_sections: dict[str, Callable[[], dict[str, Any]]] = {}
        self.on_tick: list[Callable[[], None]] = []
        # Called by SHUTDOWN with its wish: True (SAVE), False (NOSAVE) or None. A CommandError prevents it.
        self.before_shutdown: list[Callable[[bool | None], None]] = []
        self.shut_down: Callable[[], None] = self.engine.stop
        self.persistence: Persistence | None = None
        self.replication: Replication | None = None
        self.cluster: ClusterNode | None = None
        self._thread: threading.Thread | None = None
        self.engine.set_handler(self)

    def start(self) -> None:
        """Serves on a thread of its own."""
        self._thread = threading.Thread(target=self.engine.run, name="verbena-kv", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.engine.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Stops, and lets go of the engine, which holds its program: without it neither is ever freed."""
        self.stop()
        self.engine.set_handler(None)
        if self.gateway is not None:
            self.gateway.close()

    # The log in memory: for replicas, and for slots that move

    def follow(
        self, slots: Iterable[int] | None = None, from_lsn: int | None = None
    ) -> _native.kv.BacklogReader:
        """The log from an LSN on, or from now on; `slots`: of these alone. ValueError: it is not there."""
        self.logging = True  # first: what a command does is written down as a whole
        return self.engine.read_backlog(slots, from_lsn)

    def base_copy(self, slots: Iterable[int] | None = None) -> _native.kv.BaseCopy:
        """Begins a copy of everything, or of some slots; its take_reader() goes on where it ends."""
        self.logging = True
        return self.engine.base_copy(slots)

    def client(self, number: int) -> Client:
        client = self.clients.get(number)
        if client is None:
            client = self.clients[number] = Client(self.engine.client(number), self.acl.default)
        return client

    def everybody(self) -> list[Client]:
        """All clients, those that the program has never heard of included."""
        return [self.client(number) for number in sorted(self.engine.client_ids)]

    @property
    def notifications(self) -> bool:
        return bool(self.notified)

    # What the engine asks for

    def run(self, number: int, argv: list[bytes]) -> None:
        client = self.client(number)
        before, self.current = self.current, client
        quiet = client.muted or client.skips == 1
        start = client.native.pending_out if quiet else 0
        reply = self.execute(client, argv)
        if reply is not NO_REPLY:
            client.native.reply(reply)
        if quiet and (client.muted or client.skips):
            client.native.take_out(start)
        if client.skips:
            client.skips -= 1
            client.rule()
        if client.tracking is not None and client.queue is None and argv[0].upper() != b"CLIENT":
            client.tracking.caching = False  # it was about this command
        self.current = before
        if self.pushes:
            pushes, self.pushes = self.pushes, []
            client.native.write(b"".join(pushes))
        if self.blocking.waited_for:
            self.blocking.serve()

    def opened(self, number: int) -> None:
        self.client(number)

    def closed(self, number: int) -> None:
        client = self.clients.pop(number, None)
        if client is not None:
            self.blocking.forget(number)
            self.pubsub.forget(client)
            self.tracking.stop(client)
            self.pause.forget(number)
            self.monitors.forget(client)
            if self.cluster is not None:
                self.cluster.guard.forget(number)

    def watched_changed(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in self.clients:
                self.clients[number].disturbed = True

    def invalidated(self, messages: Messages) -> None:
        self.tracking.deliver(messages)

    def notify(self, database: int, kind: str, event: str, key: bytes) -> None:
        """A change, for those who listen to keyspace notifications. `kind` "": the event's own."""
        notifications.send(self.pubsub, self.notified, database, kind, event, key)

    def tick(self) -> None:
        now_ms = self.engine.now_ms
        self.blocking.expire(now_ms)
        self.pause.tick(now_ms)
        self.figures.tick()
        self.limits.tick(now_ms)
        for client, ns, unix_ms, argv in self.engine.take_slow():
            self._note_time(self.clients.get(client), argv, ns, unix_ms)
        for function in self.on_tick:
            function()

    def dump(self, value: Value) -> bytes:
        """A value in bytes, for a snapshot."""
        from verbena.kv.storage.serial import dump

        return dump(value)

    # Running commands

    def execute(self, client: Client, argv: list[bytes]) -> Reply:
        """One command of a client's; its reply, or NO_REPLY if it has been written, or will be."""
        command = find(argv)
        if command is None:
            return self.reject(client, None, unknown_command(argv))
        if (command.arity > 0 and len(argv) != command.arity) or len(argv) < -command.arity:
            name = command.name.lower().replace(" ", "|")
            return self.reject(
                client, command, CommandError(f"ERR wrong number of arguments for '{name}' command")
            )
        error = self._objection(client, command, argv)
        if error is not None:
            return self.reject(client, command, error)
        if self.cluster is not None:
            elsewhere = self.cluster.guard.check(client, command, argv)
            if elsewhere is not None:
                return elsewhere
        if self.pause.until_ms and self.pause.holds(client, command, argv):
            return NO_REPLY
        if client.queue is not None and command.name not in _NOT_QUEUED:
            client.queue.append(argv)
            return "QUEUED"
        return self.perform(client, command, argv)

    def reject(self, client: Client, command: Command | None, error: CommandError) -> CommandError:
        """An error before the command ran: it spoils a transaction."""
        if client.queue is not None:
            client.spoilt = True
        if command is not None:
            self.figures.of(command.name).rejected += 1
        self.figures.failed(error.text)
        return error

    def _objection(self, client: Client, command: Command, argv: list[bytes]) -> CommandError | None:
        if not client.authenticated and "no_auth" not in command.flags:
            return CommandError("NOAUTH Authentication required.")
        if not client.user.may_do_all:
            denied = self.acl.check(client, command, argv, self.engine.now_ms)
            if denied is not None:
                return denied
        if self.engine.loading and "loading" not in command.flags:
            return CommandError(LOADING)
        if command.name not in _FOR_LISTENERS and client.may_only_listen:
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

    def perform(self, client: Client, command: Command, argv: list[bytes]) -> Reply:
        """Runs it, whatever its client's state."""
        if self.monitors and "skip_monitor" not in command.flags and "admin" not in command.flags:
            self.monitors.show(client, argv)
        if command.function is None:
            if command.name == "PING" and client.may_only_listen:
                return [b"pong", argv[1] if len(argv) > 1 else b""]
            client.native.run_native(argv)
            if client.tracking is not None:
                self.tracking.remember(client, client.tracking, command, argv)
            return NO_REPLY
        native = client.native
        native.last_command = command.name
        if command.is_write and (why := self.engine.refusal):
            return self.reject(client, command, CommandError(why))
        if "denyoom" in command.flags and not self.engine.make_room():
            return self.reject(client, command, CommandError(OUT_OF_MEMORY))
        database = self.databases[native.database]
        self.running, self.verbatim = command, False
        started = time.perf_counter_ns()
        try:
            reply: Reply = command.function(
                Call(self, client, cast("Keys", database), argv, self.engine.now_ms),
                *argv[1 + command.name.count(" ") :],
            )
        except CommandError as error:
            reply = error
        except VerbenaError as error:
            if error.code != "no_memory":
                raise
            reply = CommandError(f"OOM {error}")
        except Exception:
            # A client must not be left without an answer, nor a transaction with half of one.
            log.exception("the command %s failed", command.name)
            reply = CommandError("ERR internal error: the command failed, see the log")
        self.running = None
        if self.verbatim:
            self.verbatim = False
            self.engine.log(database.index, argv)
        if client.tracking is not None:
            self.tracking.remember(client, client.tracking, command, argv)
        took = time.perf_counter_ns() - started
        figures = self.figures.of(command.name)
        figures.add(took)
        if isinstance(reply, CommandError):
            figures.failed += 1
            self.figures.failed(reply.text)
        if took >= self.engine.slow_ns and "skip_slowlog" not in command.flags:
            self._note_time(client, argv, took, self.engine.now_ms)
        return reply

    def _note_time(self, client: Client | None, argv: list[bytes], ns: int, unix_ms: int) -> None:
        us = ns // 1000
        if 0 <= self.slowlog.longer_than_us <= us:
            self.slowlog.add(client, argv, us, unix_ms // 1000)
        command = find(argv)
        fast = command is not None and "fast" in command.flags
        self.latency.add("fast-command" if fast else "command", us // 1000)

    # Who is ruled: whose commands all come here

    def rule_all(self) -> None:
        """After a change that concerns everybody: users, monitors, a pause."""
        self.engine.python_dispatch = bool(self.monitors or self.pause.until_ms)
        default = self.acl.default
        self.engine.set_new_client_defaults(
            python_dispatch=not (default.needs_no_password and default.may_do_all),
            unauthenticated=not default.needs_no_password,
            protected=self.parameters.protected and default.needs_no_password,
            max_clients=self.parameters.max_clients,
            out_limit=self.limits.hard_limit("normal"),
        )
        for client in list(self.clients.values()):
            client.rule()


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
