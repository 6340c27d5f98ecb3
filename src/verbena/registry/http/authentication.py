"""Authentication of requests (basic, bearer or anonymous), the 401 challenge, and the /token endpoint."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from aiohttp import web

from verbena.registry.access.identity import Identity
from verbena.registry.access.passwords import Passwords
from verbena.registry.access.rules import Policy
from verbena.registry.access.tokens import BadToken, Tokens, grant
from verbena.registry.errors import Refused
from verbena.registry.http.call import answer_json
from verbena.registry.http.routes import Route

MAX_FORM_BYTES = 16 << 10

# The right that a method needs on an endpoint; all others need "pull".
NEEDS = {
    ("manifest", "PUT"): "push",
    ("manifest", "DELETE"): "delete",
    ("blob", "DELETE"): "delete",
    ("uploads", "POST"): "push",
    **{("upload", method): "push" for method in ("GET", "PATCH", "PUT", "DELETE")},
}


@dataclass
class Authenticator:
    """Without `passwords` every request is anonymous. With `tokens` the challenge refers clients to
    /token."""

    policy: Policy
    passwords: Passwords | None = None
    tokens: Tokens | None = None

    async def identify(self, request: web.BaseRequest, route: Route) -> Identity:
        """Returns the identity of a request. Raises Refused (401) for wrong credentials."""
        header = request.headers.get("Authorization", "")
        scheme, _, rest = header.partition(" ")
        if not header or self.passwords is None:
            return Identity("", self.policy)
        if scheme.lower() == "bearer" and self.tokens is not None:
            try:
                user, granted = self.tokens.check(rest.strip())
            except BadToken as error:
                raise self.challenge(request, route, str(error), error="invalid_token") from error
            return Identity(user, self.policy, granted)
        known = await self._user(header)
        if known is None:
            raise self.challenge(request, route, "wrong user name or password")
        return Identity(known, self.policy)

    def check(self, request: web.BaseRequest, route: Route, identity: Identity) -> None:
        """Raises Refused if the identity lacks the right: 401 if other credentials may help, else 403."""
        known = bool(identity.user) or identity.granted is not None
        if route.endpoint in ("base", "catalog"):
            if self.passwords is not None and not known:
                raise self.challenge(request, route)
            return
        action = NEEDS.get((route.endpoint, request.method), "pull")
        if identity.may(action, route.name):
            return
        if self.passwords is not None and not (identity.user and identity.granted is None):
            raise self.challenge(request, route, error="insufficient_scope" if known else "")
        raise Refused("DENIED", detail={"action": action, "name": route.name[:255]})

    def challenge(
        self, request: web.BaseRequest, route: Route, message: str = "", *, error: str = ""
    ) -> Refused:
        if self.tokens is None:
            header = 'Basic realm="verbena", charset="UTF-8"'
        else:
            header = (
                f'Bearer realm="{request.scheme}://{_host(request)}/token",service="{self.tokens.service}"'
            )
            if route.name:
                action = NEEDS.get((route.endpoint, request.method), "pull")
                actions = "pull,push" if action == "push" else action
                header += f',scope="repository:{_quote_safe(route.name)}:{actions}"'
            if error:
                header += f',error="{error}"'
        return Refused("UNAUTHORIZED", message, headers={"WWW-Authenticate": header})

    async def issue_token(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves /token: GET with basic credentials or none, or POST of a form with user and password. Raises
        Refused for wrong credentials."""
        if self.tokens is None or self.passwords is None:
            raise Refused("UNSUPPORTED", "this registry issues no tokens", status=404)
        basic = Refused("UNAUTHORIZED", headers={"WWW-Authenticate": 'Basic realm="verbena"'})
        user: str | None = ""
        if request.method == "POST":
            if (request.content_length or 0) > MAX_FORM_BYTES:
                raise Refused("SIZE_INVALID", status=413)
            form = await request.post()
            scopes = [str(form.get("scope", ""))]
            given = (str(form.get("username", "")), str(form.get("password", "")))
            if form.get("grant_type") != "password":
                raise Refused("UNSUPPORTED", "grant_type must be password", status=400)
            user = given[0] if await self.passwords.verify(*given) else None
        else:
            scopes = request.query.getall("scope", [])
            if header := request.headers.get("Authorization", ""):
                user = await self._user(header)
        if user is None:
            raise basic
        token = self.tokens.issue(user, grant(self.policy, user, scopes))
        document = {"token": token, "access_token": token, "expires_in": self.tokens.lifetime_s}
        return answer_json(document, {"Cache-Control": "no-store"})

    async def _user(self, header: str) -> str | None:
        """Verifies basic credentials. Returns the user, "" for empty credentials (some clients send them),
        None for wrong ones."""
        scheme, _, rest = header.partition(" ")
        try:
            text = base64.b64decode(rest.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        user, colon, password = text.partition(":")
        if (user, colon, password) == ("", ":", ""):
            return ""
        if not colon or self.passwords is None or not await self.passwords.verify(user, password):
            return None
        return user


def _host(request: web.BaseRequest) -> str:
    return _quote_safe(request.host)


def _quote_safe(text: str) -> str:
    """Removes characters that would let client input end a quoted header value."""
    return "".join(
        letter for letter in text if letter.isascii() and letter.isprintable() and letter not in '"\\'
    )
