"""Error responses to clients: codes, statuses and bodies of the OCI specification.
Failures of the machine or the configuration are in `verbena.errors`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

# The one table of codes: default status and default message.
CODES: dict[str, tuple[int, str]] = {
    "BLOB_UNKNOWN": (404, "blob unknown to registry"),
    "BLOB_UPLOAD_INVALID": (400, "blob upload invalid"),
    "BLOB_UPLOAD_UNKNOWN": (404, "blob upload unknown to registry"),
    "DIGEST_INVALID": (400, "provided digest did not match uploaded content"),
    "MANIFEST_BLOB_UNKNOWN": (404, "manifest references a manifest or blob unknown to registry"),
    "MANIFEST_INVALID": (400, "manifest invalid"),
    "MANIFEST_UNKNOWN": (404, "manifest unknown to registry"),
    "NAME_INVALID": (400, "invalid repository name"),
    "NAME_UNKNOWN": (404, "repository name not known to registry"),
    "SIZE_INVALID": (400, "provided length did not match content length"),
    "UNAUTHORIZED": (401, "authentication required"),
    "DENIED": (403, "requested access to the resource is denied"),
    "UNSUPPORTED": (405, "the operation is unsupported"),
    "TOOMANYREQUESTS": (429, "too many requests"),
    "UNAVAILABLE": (503, "service unavailable"),
}


class Refused(Exception):
    """A request that gets an error response. `code` is the specification's; `detail` is any value that JSON
    can represent."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        detail: object = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        usual, words = CODES[code]
        super().__init__(message or words)
        self.code = code
        self.message = message or words
        self.detail = detail
        self.status = status or usual
        self.headers = dict(headers or {})

    def entries(self) -> list[dict[str, object]]:
        return [error_entry(self.code, self.message, self.detail)]

    def body(self) -> bytes:
        return json.dumps({"errors": self.entries()}).encode()


class BlobsUnknown(Refused):
    """A manifest refers to blobs or manifests that the repository lacks; the response has one entry for
    each."""

    def __init__(self, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__("MANIFEST_BLOB_UNKNOWN", detail={"digest": self.missing[0]})

    def entries(self) -> list[dict[str, object]]:
        return [error_entry(self.code, self.message, {"digest": digest}) for digest in self.missing]


def error_entry(code: str, message: str, detail: object) -> dict[str, object]:
    entry: dict[str, object] = {"code": code, "message": message}
    if detail is not None:
        entry["detail"] = detail
    return entry
