"""Any order of pushes, mounts, deletes, collections and restarts, compared with a model of dictionaries."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.registry.filling import Filler, image_manifest

from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.errors import BlobsUnknown, Refused
from verbena.registry.gc import Policy, collect
from verbena.registry.manifests import OCI_MANIFEST
from verbena.registry.scrub import check
from verbena.registry.service import Registry

REPOSITORIES = st.sampled_from(["a", "b/c"])
BLOBS = st.sampled_from([b"one", b"two", b"three"])
TAGS = st.sampled_from(["x", "y"])


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="verbena-model-"))
        self.registry = Registry(self.folder)
        self.links: dict[str, set[bytes]] = {"a": set(), "b/c": set()}
        self.manifests: dict[str, dict[Digest, tuple[bytes, frozenset[bytes]]]] = {"a": {}, "b/c": {}}
        self.tags: dict[str, dict[str, Digest]] = {"a": {}, "b/c": {}}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def refused(self, work: Any) -> bool:
        try:
            self.run(work)
        except Refused:
            return True
        return False

    @rule(name=REPOSITORIES, content=BLOBS)
    def push_blob(self, name: str, content: bytes) -> None:
        self.run(Filler(self.registry).blob(name, content))
        self.links[name].add(content)

    @rule(name=REPOSITORIES, origin=REPOSITORIES, content=BLOBS)
    def mount(self, name: str, origin: str, content: bytes) -> None:
        mounted = self.run(self.registry.mount(name, digests.of(content), origin=origin))
        assert (mounted is not None) == (content in self.links[origin])
        if mounted:
            self.links[name].add(content)

    @rule(name=REPOSITORIES, tag=TAGS, layers=st.sets(BLOBS, min_size=1), mark=st.integers(0, 2))
    def push_manifest(self, name: str, tag: str, layers: set[bytes], mark: int) -> None:
        first, *others = sorted(layers)
        parts = [(digests.of(one), len(one)) for one in others]
        content = image_manifest((digests.of(first), len(first)), parts, annotations={"n": str(mark)})
        try:
            pushed = self.run(self.registry.put_manifest(name, tag, content, OCI_MANIFEST))
        except BlobsUnknown as unknown:
            missing = set(unknown.missing)
            assert missing == {str(digests.of(one)) for one in layers - self.links[name]}
        else:
            assert layers <= self.links[name]
            self.manifests[name][pushed.digest] = (content, frozenset(layers))
            self.tags[name][tag] = pushed.digest

    @rule(name=REPOSITORIES, tag=TAGS)
    def delete_tag(self, name: str, tag: str) -> None:
        assert self.refused(self.registry.delete_manifest(name, tag)) == (tag not in self.tags[name])
        self.tags[name].pop(tag, None)

    @precondition(lambda self: any(self.manifests.values()))
    @rule(data=st.data())
    def delete_manifest(self, data: st.DataObject) -> None:
        there = sorted((name, digest) for name, found in self.manifests.items() for digest in found)
        name, digest = data.draw(st.sampled_from(there))
        assert not self.refused(self.registry.delete_manifest(name, str(digest)))
        del self.manifests[name][digest]
        self.tags[name] = {tag: one for tag, one in self.tags[name].items() if one != digest}

    @rule(name=REPOSITORIES, content=BLOBS)
    def delete_blob(self, name: str, content: bytes) -> None:
        gone = not self.refused(self.registry.delete_blob(name, digests.of(content)))
        assert gone == (content in self.links[name])
        self.links[name].discard(content)

    @rule()
    def collect_garbage(self) -> None:
        """Without grace period: removes unreferenced blobs and files without a row."""
        collect(self.folder, Policy(grace_s=-1))
        for name, found in self.manifests.items():
            needed = frozenset().union(*(parts for _, parts in found.values()))
            self.links[name] &= needed
        everywhere = set().union(*self.links.values())
        assert {digest for digest, _ in self.registry.blobs.files()} == set(map(digests.of, everywhere))

    @rule()
    def restart(self) -> None:
        self.registry.close()
        self.registry = Registry(self.folder)

    @invariant()
    def everything_is_as_expected(self) -> None:
        for name, contents in self.links.items():
            for content in (b"one", b"two", b"three"):
                blob = self.run(self.registry.local_blob(name, digests.of(content)))
                assert (blob is not None) == (content in contents)
                assert blob is None or blob.path.read_bytes() == content
            for digest, (content, _) in self.manifests[name].items():
                assert self.run(self.registry.manifest(name, str(digest))).content == content
            assert self.registry.metadata.tags(name) == sorted(self.tags[name])
            for tag, digest in self.tags[name].items():
                assert self.run(self.registry.manifest(name, tag)).digest == digest

    def teardown(self) -> None:
        self.registry.close()
        assert check(self.folder).findings == []
        self.loop.close()
        shutil.rmtree(self.folder)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=12, stateful_step_count=25)
