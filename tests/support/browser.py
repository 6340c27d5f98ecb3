"""The distribution's Chromium without a window, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
REASON = "chromium is not installed"
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Escape": 27, "Tab": 9}


class Browser:
    """One page. An async context manager."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        """What the page's programs could not do, and what was refused to be loaded."""
        self._folder = tempfile.mkdtemp(prefix="verbena-browser-")
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Browser:
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-port=0", f"--user-data-dir={self._folder}", "--hide-scrollbars",
             "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._session = aiohttp.ClientSession()
        port = await self._port()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [page for page in await answer.json() if page["type"] == "page"]
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=1 << 26)
        self._reader = asyncio.ensure_future(self._read())
        for domain in ("Page", "Runtime", "Log"):
            await self._send(f"{domain}.enable")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()
        await self._session.close()
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def open(self, url: str, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self._send("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self._send("Emulation.setEmulatedMedia", features=features)
        await self._send("Page.navigate", url="about:blank")
        await self._send("Page.navigate", url=url)
        await self.until("document.documentElement.dataset.ready === 'yes'")

    async def evaluate(self, expression: str) -> Any:
        answer = await self._send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Returns when it is true; the test's time limit ends it."""
        looked = f"""new Promise((resolve) => {{
            const look = () => {{ if ({expression}) resolve(true); else setTimeout(look, 20); }};
            look();
        }})"""
        while True:
            try:
                await self.evaluate(looked)
                return
            except (AssertionError, RuntimeError):  # another page came in between
                await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        code = KEYS.get(key, ord(key[0].upper()))
        event = {"key": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        await self._send("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        await self._send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def screenshot(self, file: Path) -> None:
        answer = await self._send("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(answer["data"]))

    async def _port(self) -> int:
        file = Path(self._folder) / "DevToolsActivePort"
        while not file.is_file() or not file.read_text().strip():
            assert self._process.poll() is None, "chromium did not start"
            await asyncio.sleep(0.05)
        return int(file.read_text().split()[0])

    async def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await future

    async def _read(self) -> None:
        async for message in self._socket:
            found = json.loads(message.data)
            if "id" in found:
                future = self._answers.pop(found["id"])
                if "error" in found:
                    future.set_exception(RuntimeError(found["error"]["message"]))
                else:
                    future.set_result(found["result"])
            elif found["method"] == "Runtime.exceptionThrown":
                self.failures.append(found["params"]["exceptionDetails"]["text"])
            elif found["method"] == "Log.entryAdded" and found["params"]["entry"]["level"] == "error":
                self.failures.append(found["params"]["entry"]["text"])
