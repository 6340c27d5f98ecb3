"""Valid and invalid digests, names and manifests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.registry import digests, manifests, names
from verbena.registry.errors import Refused

A, B = "a" * 64, "b" * 128


@pytest.mark.parametrize("text", [f"sha256:{A}", f"sha512:{B}"])
def test_a_digest_keeps_its_text(text: str) -> None:
    assert str(digests.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "sha256", "sha256:", f"sha256:{A[:-1]}", f"sha256:{A}a", f"sha512:{A}"),
        *(
            f"sha256:{A.upper()}",
            f"sha256:{'g' * 64}",
            f"SHA256:{A}",
            f"md5:{'a' * 32}",
            f"sha384:{'a' * 96}",
        ),
        *(f"sha256:{A}\n", f" sha256:{A}", f"sha256:../{A[3:]}", "sha256:" + "\u0661" * 64, "a" * 100_000),
    ],
)
def test_invalid_digests_are_rejected(text: str) -> None:
    """Includes unsupported algorithms, upper case, digits of other scripts, and paths."""
    with pytest.raises(digests.BadDigest):
        digests.parse(text)


@given(st.text(max_size=200))
def test_any_text_parses_or_raises_baddigest(text: str) -> None:
    """A parsed digest names a file within the folder."""
    try:
        digest = digests.parse(text)
    except digests.BadDigest:
        return
    assert digest.encoded.isalnum()


def test_known_content_has_known_digests() -> None:
    assert digests.of(b"").encoded == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digests.of(b"abc", "sha512").encoded.startswith("ddaf35a193617abacc417349ae204131")


@pytest.mark.parametrize("name", ["a", "library/alpine", "a.b_c__d-e--f/g0", "0", "x" * 255, "a/b/c/d/e/f"])
def test_a_repository_name(name: str) -> None:
    assert names.is_repository(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "A", "a/", "/a", "a//b", "a..b", "a___b", "-a", "a-", ".a", "a/../b", "a b", "a\n", "x" * 256),
        *("é", "a:b", "a@b", "a%2fb", "\u0661"),
    ],
)
def test_invalid_repository_names(name: str) -> None:
    assert not names.is_repository(name)


def test_tags() -> None:
    assert all(map(names.is_tag, ("latest", "_x", "1.2-3_4", "A" * 128)))
    assert not any(map(names.is_tag, ("", ".x", "-x", "A" * 129, "a:b", "a/b", "a\n", "é")))


def test_an_image_lists_its_parts() -> None:
    """Layers with URLs are left out."""
    layers = [
        {"digest": f"sha256:{A}", "size": 3},
        {"digest": f"sha512:{B}", "size": 4, "urls": ["http://x"]},
    ]
    document = {
        "schemaVersion": 2,
        "config": {"mediaType": "application/x.config", "digest": f"sha256:{'c' * 64}", "size": 1},
        "layers": layers,
        "subject": {"digest": f"sha256:{'d' * 64}", "size": 2},
        "annotations": {"k": "v"},
    }
    parsed = manifests.parse(json.dumps(document).encode(), manifests.OCI_MANIFEST + "; charset=utf-8")
    assert parsed.blobs == (f"sha256:{'c' * 64}", f"sha256:{A}")
    assert parsed.subject == f"sha256:{'d' * 64}"
    assert parsed.artifact_type == "application/x.config"
    assert parsed.annotations == {"k": "v"}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", manifests.OCI_MANIFEST),
        (b"[]", manifests.OCI_MANIFEST),
        (b"\xff\xfe", manifests.OCI_MANIFEST),
        (b'{"schemaVersion": 1}', manifests.OCI_MANIFEST),
        (b'{"mediaType": "application/x+json"}', manifests.OCI_MANIFEST),
        (b'{"mediaType": 7}', manifests.OCI_MANIFEST),
        (b"{}", "text/plain"),
        (b'{"layers": {}}', manifests.OCI_MANIFEST),
        (b'{"layers": [1]}', manifests.OCI_MANIFEST),
        (b'{"layers": [{"digest": "sha256:0", "size": 1}]}', manifests.OCI_MANIFEST),
        (b'{"layers": [{"size": 1}]}', manifests.OCI_MANIFEST),
        (b'{"config": {"digest": "sha256:%s"}}' % (b"a" * 64), manifests.OCI_MANIFEST),
        (b'{"config": {"digest": "sha256:%s", "size": -1}}' % (b"a" * 64), manifests.OCI_MANIFEST),
        (b'{"annotations": {"a": 1}}', manifests.OCI_MANIFEST),
        (b'{"artifactType": []}', manifests.OCI_MANIFEST),
        (b'{"subject": "x"}', manifests.OCI_MANIFEST),
        (b'{"a":' * 100_000, manifests.OCI_MANIFEST),
    ],
)
def test_invalid_manifests_are_rejected(content: bytes, kind: str) -> None:
    with pytest.raises(Refused) as caught:
        manifests.parse(content, kind)
    assert caught.value.code == "MANIFEST_INVALID"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just(f"sha256:{A}"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "mediaType",
                        "config",
                        "layers",
                        "manifests",
                        "blobs",
                        "subject",
                        "annotations",
                        "digest",
                    ),
                    *("size", "urls", "artifactType", "schemaVersion"),
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(JSON | st.binary(max_size=64))
def test_any_manifest_parses_or_is_rejected(document: object) -> None:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    parsed, answer = None, b""
    try:
        parsed = manifests.parse(content, "")
    except Refused as refused:
        answer = refused.body()
    if parsed is None:
        assert json.loads(answer)["errors"][0]["code"] == "MANIFEST_INVALID"
    else:
        assert all(digests.parse(digest) for digest in (*parsed.blobs, *parsed.manifests))
