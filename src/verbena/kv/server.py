"""The store's program: answers what native code does not, and knows what is going on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv import commands
from verbena.kv.blocking import Blocking
from verbena.kv.call import Call
from verbena.kv.clients import Client
from verbena.kv.commands.declare import COMMANDS, Command, find
from verbena.kv.database import Database
from verbena.kv.replies import NO_REPLY, CommandError, Reply

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.kv.gateway import Gateway


class Server:
    """An engine with its commands. `memory`: where chunks of memory come from; None: the process's own."""

    def __init__(self, *, databases: int = 16, memory: Callable[[int], Buffer] | None = None) -> None:
        commands.load()
        self.engine = _native.kv.Engine(databases, memory)
        self.databases = [Database(self, self.engine.database(i)) for i in range(databases)]
        self.clients: dict[int, Client] = {}
        self.blocking = Blocking(self)
        self.started = time.time()
        self.logging = False  # effects are written down
        self.notifications = False
        self.running: Command | None = None
        self.verbatim = False  # the running command is to be written down as it came
        self.in_transaction = False
        self.gateway: Gateway | None = None
        self._thread: threading.Thread | None = None
        self.engine.set_program(self)

    def start(self) -> None:
        """Serves on a thread of its own."""
        self._thread = threading.Thread(target=self.engine.run, name="verbena-kv", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.engine.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def client(self, number: int) -> Client:
        client = self.clients.get(number)
        if client is None:
            client = self.clients[number] = Client(self.engine.client(number))
        return client

    # What the engine asks for

    def run(self, number: int, argv: list[bytes]) -> None:
        client = self.client(number)
        reply = self.execute(client, argv)
        if reply is not NO_REPLY:
            client.native.reply(reply)
        if self.blocking.waited_for:
            self.blocking.serve()

    def opened(self, number: int) -> None:
        self.client(number)

    def closed(self, number: int) -> None:
        client = self.clients.pop(number, None)
        if client is not None:
            self.blocking.forget(number)

    def disturbed(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in self.clients:
                self.clients[number].disturbed = True

    def notify(self, database: int, event: str, key: bytes, kind: str = "") -> None: ...

    def tick(self) -> None:
        self.blocking.expire(self.engine.now_ms)
        if self.gateway is not None:
            self.gateway.sweep()

    # Running commands

    def execute(self, client: Client, argv: list[bytes]) -> Reply:
        """One command of a client's; its reply, or NO_REPLY if it has been written."""
        command = find(argv)
        if command is None:
            return unknown_command(argv)
        if (command.arity > 0 and len(argv) != command.arity) or len(argv) < -command.arity:
            return CommandError(f"ERR wrong number of arguments for '{argv[0].decode().lower()}' command")
        return self.perform(client, command, argv)

    def perform(self, client: Client, command: Command, argv: list[bytes]) -> Reply:
        if command.function is None:
            client.native.run_native(argv)
            return NO_REPLY
        if "denyoom" in command.flags and not self.engine.make_room():
            return CommandError("OOM command not allowed when used memory > 'maxmemory'.")
        database = self.databases[client.native.database]
        self.running, self.verbatim = command, False
        try:
            call = Call(self, client, database, argv, self.engine.now_ms)
            return command.function(call, *argv[1 + command.name.count(" ") :])
        except CommandError as error:
            return error
        finally:
            self.running = None
            if self.verbatim:
                self.engine.log(database.index, argv)


def unknown_command(argv: list[bytes]) -> CommandError:
    name = argv[0][:128].decode("utf-8", "replace")
    arguments = "".join(f"'{word[:128].decode('utf-8', 'replace')}' " for word in argv[1:])[:128]
    same = [known for known in COMMANDS if known.startswith(name.upper() + " ")]
    if same and len(argv) > 1:
        return CommandError(
            f"ERR unknown subcommand '{argv[1][:128].decode('utf-8', 'replace')}'. Try {name.upper()} HELP."
        )
    return CommandError(f"ERR unknown command '{name}', with args beginning with: {arguments}")
