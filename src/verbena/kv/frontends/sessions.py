"""The store over sessions: memory that peers can read one-sided, the frontend that serves their calls, and
which user each stream begins as."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.frontends.session_users import SessionUsers
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.kv.server.clients import Client
    from verbena.kv.server.server import Server
    from verbena.transport import Listener, Node, Region, Session

log = logging.getLogger("verbena.kv")


class SessionFrontend:
    """Made before the server, whose memory it allocates; opened afterwards:

    frontend = SessionFrontend(node)
    server = Server(memory=frontend.memory)
    frontend.open(server)

    `users`: the users of principals. `loopback_only`: no other machine can be a client of the store, by any
    protocol."""

    def __init__(self, node: Node, *, users: SessionUsers | None = None, loopback_only: bool = True) -> None:
        self.node = node
        self._users = users or SessionUsers()
        self._loopback_only = loopback_only
        self._audience = _native.transport.Audience(of_everybody=False)
        self._regions: list[Region] = []
        self._native: _native.kv.SessionFrontend | None = None
        self._server: Server | None = None
        self._listener: Listener | None = None
        self._admitted = True  # unproved peers, at the last change of users

    def memory(self, nbytes: int) -> Buffer:
        """Returns a chunk for the engine. The call kv.layout lends it to sessions whose user may read every
        key, for as long as that holds."""
        region = self.node._allocate(nbytes, Access.REMOTE_READ, self._audience)
        self._regions.append(region)
        if self._native is not None:
            self._native.add_region(region.remote.key)
        return region

    def open(self, server: Server) -> None:
        self._server = server
        server.clients.begin_stream = self._begin
        server.clients.on_rights_changed.append(self._update_admission)
        self._native = _native.kv.SessionFrontend(server.engine, self.node._native, self._audience)
        for region in self._regions:
            self._native.add_region(region.remote.key)
        server.services.sessions = self
        self._rule_of_node = self.node.refuses_administration
        self.node.refuses_administration = self._refuses_administration
        self._admitted = self.admits_unproved
        for principal, name in self._users.by_principal.items():
            if name not in server.acl.users:
                log.warning(
                    "kv.session_users: there is no user %s: streams of %s begin unauthenticated",
                    name,
                    principal,
                )

    def admit_through(self, listener: Listener) -> None:
        """Makes the listener of the sessions follow `admits_unproved` from now on."""
        self._listener = listener
        listener.admit_unproved(self.admits_unproved)

    def close(self) -> None:
        """Ends serving, and releases the engine, so that it can be freed."""
        if self._server is not None:
            self.node.refuses_administration = self._rule_of_node
        self._native = self._server = None

    @property
    def requests(self) -> int:
        """The number of calls received; one-sided reads do not count."""
        return self._native.requests if self._native is not None else 0

    def counters(self) -> dict[str, int]:
        """Returns the numbers of calls, of clients, and of memory leases for one-sided reads."""
        return self._native.counters() if self._native is not None else {}

    @property
    def admits_unproved(self) -> bool:
        """Whether peers that have proved nothing may use the store: only while it has neither passwords nor
        an ACL file, and while no other machine can be its client."""
        return self._loopback_only and self._server is not None and self._server.acl.is_open

    def _refuses_administration(self, session: Session) -> str:
        """Returns why the session may not list and break others, as CLIENT LIST and CLIENT KILL can. In a
        store with users, root, the store's own user of the host and mapped users with all rights may."""
        principal = session.principal
        if not principal.is_proved:
            return "unproved peer: it needs the secret, a certificate or an allowed uid"
        if self._server is None or self._server.acl.is_open or principal.uid in (0, os.geteuid()):
            return ""
        user = self._server.acl.users.get(self._users.user_of(principal) or "")
        if user is not None and user.enabled and user.may_do_all:
            return ""
        return f"{principal} is not mapped to a user of the store with all rights (kv.session_users)"

    # On the engine's thread

    def _begin(self, client: Client) -> None:
        assert self._server is not None
        session = self.node._sessions.get(client.stream[0])
        if session is None or not (session.principal.is_proved or self.admits_unproved):
            client.authenticated = False  # the session has ended, or is about to
            client.update_dispatch()
            return
        name = self._users.user_of(session.principal)
        if name is None:
            return
        user = self._server.acl.users.get(name)
        if user is not None and user.enabled:
            client.log_in(user, by_principal=True)
        else:
            client.authenticated = False
            client.update_dispatch()

    def _update_admission(self) -> None:
        """Called after a change of users: admits unproved peers from now on, or ends their sessions."""
        if self._server is None or self._admitted == self.admits_unproved:
            return
        self._admitted = self.admits_unproved
        if self._listener is not None:
            self._listener.admit_unproved(self._admitted)
        if self._admitted:
            return
        log.warning("sessions of peers without a secret, certificate or allowed uid end: the store has users")
        for client in list(self._server.clients.known()):
            session = self.node._sessions.get(client.stream[0])
            if session is not None and not session.principal.is_proved:
                client.native.close(at_once=True)
