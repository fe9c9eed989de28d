"""A real headless Chromium, driven over its DevTools socket: what a page does, not what its text says."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_WAIT_SECONDS = 60.0


@dataclass(slots=True)
class Chromium:
    """One browser process with an empty profile of its own."""

    program: str
    profile: Path
    process: subprocess.Popen[bytes] | None = None
    socket_url: str = ""

    def start(self) -> None:
        """Raises RuntimeError with what the browser said when it does not come up."""
        self.profile.mkdir(parents=True)
        said = (self.profile / "said.log").open("wb")
        with said:
            self.process = subprocess.Popen(
                [self.program, *_FLAGS, f"--user-data-dir={self.profile}", "about:blank"], stdout=said, stderr=said
            )
        port_file = self.profile / "DevToolsActivePort"
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            told = port_file.read_text().split() if port_file.exists() else []
            if len(told) == 2:
                self.socket_url = f"ws://127.0.0.1:{told[0]}{told[1]}"
                return
            time.sleep(0.02)
        log = (self.profile / "said.log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"{self.program} did not open its DevTools socket; it said: {log}")

    def stop(self) -> None:
        """End this browser, by its own process id."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """A new empty page in a context of its own, closed at the end."""
        async with aiohttp.ClientSession() as client, client.ws_connect(self.socket_url, max_msg_size=0) as socket:
            page = Page(socket)
            reader = asyncio.create_task(page.read())
            try:
                await page.open()
                yield page
            finally:
                await page.close()
                reader.cancel()
                with suppress(asyncio.CancelledError):
                    await reader


@dataclass(slots=True)
class Page:
    """A page; `events` holds every DevTools event in order."""

    socket: aiohttp.ClientWebSocketResponse
    events: list[Mapping[str, Any]] = field(default_factory=list)
    session: str = ""
    _context: str = ""
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)
    _sent: int = 0

    async def read(self) -> None:
        async for message in self.socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers[told["id"]].set_result(told)
                continue
            self.events.append(told)
            if told["method"] == "Page.loadEventFired":
                self._loaded.set()

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a DevTools method; raises RuntimeError when it answers with an error."""
        self._sent += 1
        answer = self._answers[self._sent] = asyncio.get_running_loop().create_future()
        body: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self.session:
            body["sessionId"] = self.session
        await self.socket.send_json(body)
        told = await asyncio.wait_for(answer, _WAIT_SECONDS)
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']}")
        return told["result"]

    async def open(self) -> None:
        self._context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=self._context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Audits", "DOM"):
            await self.call(f"{domain}.enable")

    async def close(self) -> None:
        self.session = ""
        await self.call("Target.disposeBrowserContext", browserContextId=self._context)

    async def load(self, url: str) -> None:
        """Go to `url` and wait for the load event. What was recorded before is forgotten."""
        self.events.clear()
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), _WAIT_SECONDS)

    async def screen(self, width: int, height: int = 900, *, scheme: str = "light", media: str = "screen") -> None:
        """A screen of this many CSS pixels; under 500 wide it is a phone with touch."""
        phone = width < 500
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", media=media, features=features)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression asked from outside the page (the page itself may run nothing)."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def screenshot(self, *, whole: bool = False) -> bytes:
        """A PNG of the screen, or of the whole page."""
        told = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(told["data"])

    async def pdf(self) -> bytes:
        told = await self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(told["data"])

    def requests(self) -> list[str]:
        """URLs the page asked for, its own among them."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the browser reported: errors, policy violations, exceptions, console output, dialogs."""
        methods = {
            "Log.entryAdded",
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Audits.issueAdded",
            "Page.javascriptDialogOpening",
        }
        return [json.dumps(e["params"])[:500] for e in self.events if e["method"] in methods]


def version(program: str) -> str:
    """What the browser says of itself."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60)
    return told.stdout.strip()
