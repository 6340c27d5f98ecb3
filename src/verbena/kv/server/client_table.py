"""The clients of a server, and what applies to all of them: limits, a pause, monitors, tracking."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from verbena.kv.server.clients import NO_STREAM, Client
from verbena.kv.server.limits import OutputLimits
from verbena.kv.server.monitor import Monitors
from verbena.kv.server.pause import Pause
from verbena.kv.server.tracking import Tracking

if TYPE_CHECKING:
    from verbena import _native
    from verbena.kv.acl import Acl


class Clients:
    """A client gets a row when Python first needs it; until then only the engine knows it. `run(id, argv)`
    runs a command that CLIENT PAUSE has held back. `current`: the client whose command runs now. `pushes`:
    push messages to this client, which are written after its reply."""

    def __init__(self, engine: _native.kv.Engine, acl: Acl, run: Callable[[int, list[bytes]], None]) -> None:
        self.current: Client | None = None
        self.pushes: list[bytes] = []
        self.protected = True  # protected-mode
        self.max_clients = 10_000
        self.limits = OutputLimits(engine, all=self.all, known=self.known, on_change=self.update_dispatch)
        self.monitors = Monitors(self.update_dispatch)
        self.pause = Pause(self.update_dispatch, run)
        self.tracking = Tracking(engine, self.get)
        self._engine = engine
        self._acl = acl
        self._by_id: dict[int, Client] = {}
        self._by_stream: dict[tuple[int, int], Client] = {}
        # Sets the user of a stream that begins; replaced by the frontend for sessions.
        self.begin_stream: Callable[[Client], None] = lambda client: None
        # Called on the engine's thread when the rights of clients may have changed.
        self.on_rights_changed: list[Callable[[], None]] = []

    def get(self, id: int) -> Client | None:
        """Returns a client that Python knows; None: only the engine knows it."""
        return self._by_id.get(id)

    def ensure(self, id: int) -> Client:
        """Returns the client, and creates its row if there is none."""
        client = self._by_id.get(id)
        if client is None:
            client = self._by_id[id] = Client(self._engine.client(id), self._acl.default)
            if client.stream != NO_STREAM:
                self._by_stream[client.stream] = client
                self.begin(client)
        return client

    def of_stream(self, session: int, stream: int) -> Client | None:
        """Returns the client that is this stream of a session; None: it has not begun, or was closed."""
        return self._by_stream.get((session, stream))

    def begin(self, client: Client) -> None:
        """Makes it a client as it was when it connected: of the default user, or of the user to which the
        principal of its session is mapped."""
        client.log_out(self._acl.default)
        if client.stream != NO_STREAM:
            self.begin_stream(client)

    def remove(self, id: int) -> Client | None:
        client = self._by_id.pop(id, None)
        if client is not None:
            self._by_stream.pop(client.stream, None)
        return client

    def known(self) -> Collection[Client]:
        """Returns the clients that Python knows."""
        return self._by_id.values()

    def all(self) -> list[Client]:
        """Returns all connected clients."""
        return [self.ensure(id) for id in sorted(self._engine.client_ids)]

    def update_dispatch(self) -> None:
        """Tells the engine which commands Python runs, and the settings of new connections. Call it after a
        change that affects all clients: of users, monitors, a pause or limits."""
        self._engine.python_dispatch = bool(self.monitors or self.pause.until_ms)
        default = self._acl.default
        self._engine.set_new_client_defaults(
            python_dispatch=not (default.needs_no_password and default.may_do_all),
            unauthenticated=not default.needs_no_password,
            protected=self.protected and default.needs_no_password,
            max_clients=self.max_clients,
            out_limit=self.limits.hard_limit("normal"),
        )
        for client in list(self._by_id.values()):
            if client.by_principal:  # it has no password that could expire: it follows its user
                client.authenticated = client.user.enabled
            client.update_dispatch()
        self.rights_changed()

    def rights_changed(self) -> None:
        """Call it after a change of users or of a client's user."""
        for function in self.on_rights_changed:
            function()
