"""A client for upstream registries over HTTP: blobs from any offset, manifests by tag or digest, with the
bearer tokens and basic credentials of Docker-style registries. Blocking, for worker threads; large reads run
without the GIL."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urljoin, urlsplit

from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.manifests import DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST, Manifest

ACCEPTED = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST, "*/*")
TIMEOUT_S = 30.0
MAX_REDIRECTS = 5
MAX_MANIFEST_BYTES = 4 << 20
MAX_TOKEN_BYTES = 64 << 10
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class UpstreamFailed(Exception):
    """The registry is unreachable or responded with an error; the message states which."""


@dataclass
class Body:
    """A blob being received: call `readinto()` until it returns 0, then `close()`."""

    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection
    size: int
    """The size of the whole blob."""
    socket: socket.socket | None

    def readinto(self, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer):
            try:
                count = self.response.readinto(buffer[done:])
            except (OSError, http.client.HTTPException) as error:
                raise UpstreamFailed(f"transfer interrupted: {error}") from error
            if not count:
                break
            done += count
        return done

    def abort(self) -> None:
        """Makes a readinto() in another thread return."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.response.close()
        self.connection.close()


class Upstream:
    """`url` may contain user and password; its path is put before every repository name."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a registry URL")
        port = f":{parts.port}" if parts.port else ""
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.url = f"{parts.scheme}://{host}{port}"
        self.failures = 0
        self._prefix = parts.path.strip("/")
        self._basic = ""
        if parts.username:
            pair = f"{parts.username}:{parts.password or ''}"
            self._basic = "Basic " + base64.b64encode(pair.encode()).decode()
        self._timeout_s = timeout_s
        self._tls = tls
        self._tokens: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def blob(self, repository: str, digest: Digest, *, start: int = 0) -> Body | None:
        """Requests the blob from offset `start`; the caller must close the result. None if the registry does
        not have it. Raises UpstreamFailed."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        found = self._get(repository, f"blobs/{digest}", headers)
        if found is None:
            return None
        response, connection = found
        length = response.headers.get("Content-Length", "")
        if start and response.status != 206:
            connection.close()
            raise UpstreamFailed("the upstream does not support ranges, so the download cannot resume")
        if not length.isascii() or not length.isdigit():
            connection.close()
            raise UpstreamFailed("the response has no length")
        return Body(response, connection, start + int(length), connection.sock)

    def manifest(self, repository: str, reference: str) -> Manifest | None:
        """Returns a manifest, or None if the registry does not have it. Raises UpstreamFailed, also for a
        wrong digest."""
        found = self._get(
            repository, f"manifests/{quote(reference, safe=':')}", {"Accept": ", ".join(ACCEPTED)}
        )
        if found is None:
            return None
        response, connection = found
        try:
            content = response.read(MAX_MANIFEST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise UpstreamFailed(f"transfer interrupted: {error}") from error
        finally:
            connection.close()
        if len(content) > MAX_MANIFEST_BYTES:
            raise UpstreamFailed("the manifest is too long")
        wanted = digests.parse(reference) if digests.is_digest(reference) else None
        digest = digests.of(content, wanted.algorithm if wanted else digests.DEFAULT)
        if wanted is not None and digest != wanted:
            raise UpstreamFailed(f"the manifest has the digest {digest}, not the requested one")
        return Manifest(digest, response.headers.get_content_type(), content)

    def _get(
        self, repository: str, path: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection] | None:
        name = f"{self._prefix}/{repository}" if self._prefix else repository
        url = f"{self.url}/v2/{name}/{path}"
        authorization = self._cached_token(name) or self._basic
        for _ in range(2):
            given = headers | ({"Authorization": authorization} if authorization else {})
            response, connection = self._follow(url, given)
            if response.status in (200, 206):
                return response, connection
            challenge = response.headers.get("WWW-Authenticate", "")
            connection.close()
            if response.status == 404:
                return None
            if response.status != 401 or not challenge.lower().startswith("bearer "):
                break
            authorization = self._token(name, challenge)
        self.failures += 1
        raise UpstreamFailed(f"{self.url} returned status {response.status} for {name}/{path}")

    def _follow(
        self, url: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        for _ in range(MAX_REDIRECTS):
            response, connection = self._request(url, headers)
            location = response.headers.get("Location")
            if response.status not in (301, 302, 303, 307, 308) or not location:
                return response, connection
            connection.close()
            target = urljoin(url, location)
            if urlsplit(target).netloc != urlsplit(url).netloc:
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
            if urlsplit(target).scheme != "https" and urlsplit(url).scheme == "https":
                raise UpstreamFailed(f"{self.url} redirects from https to {urlsplit(target).scheme}")
            url = target
        raise UpstreamFailed(f"{self.url} redirects too often")

    def _request(
        self, url: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UpstreamFailed(f"{self.url} redirects to an address that is not HTTP")
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self._timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout_s)
        try:
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"User-Agent": "verbena", **headers})
            return connection.getresponse(), connection
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.failures += 1
            raise UpstreamFailed(f"{self.url}: {error}") from error

    def _cached_token(self, name: str) -> str:
        with self._lock:
            token, until = self._tokens.get(name, ("", 0.0))
            return token if time.monotonic() < until else ""

    def _token(self, name: str, challenge: str) -> str:
        """Requests a token to pull this repository from the realm of the challenge, and caches it. Raises
        UpstreamFailed."""
        said = dict(_CHALLENGE.findall(challenge))
        realm = said.pop("realm", "")
        query = {key: said[key] for key in ("service", "scope") if key in said}
        query.setdefault("scope", f"repository:{name}:pull")
        separator = "&" if "?" in realm else "?"
        headers = {"Authorization": self._basic} if self._basic else {}
        response, connection = self._request(f"{realm}{separator}{urlencode(query)}", headers)
        try:
            document = json.loads(response.read(MAX_TOKEN_BYTES)) if response.status == 200 else {}
            token = document.get("token") or document.get("access_token")
            lifetime_s = float(document.get("expires_in") or 60)
        except (OSError, http.client.HTTPException, ValueError, TypeError, AttributeError) as error:
            raise UpstreamFailed(f"{self.url}: token request failed: {error}") from error
        finally:
            connection.close()
        if not isinstance(token, str) or not token:
            raise UpstreamFailed(f"{self.url}: token request returned status {response.status}")
        bearer = f"Bearer {token}"
        with self._lock:
            self._tokens[name] = (bearer, time.monotonic() + max(0.0, lifetime_s - 5))
        return bearer
