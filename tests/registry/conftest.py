"""A registry on a throw-away folder, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from support.registry.filling import Filler
from support.registry.http_client import Client, serve

from verbena.registry.service import Registry


@pytest_asyncio.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    opened = Registry(tmp_path / "data")
    yield opened
    await asyncio.to_thread(opened.close)


@pytest_asyncio.fixture
async def filler(registry: Registry) -> Filler:
    return Filler(registry)


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a registry over HTTP with every default."""
    async with serve(tmp_path / "served") as serving:
        yield serving
