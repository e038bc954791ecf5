"""A page in a headless Chromium, whose GPU is the software adapter that comes with it: driven by the DevTools protocol.

The protocol goes over two pipes, so no port is opened, and no library is needed.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync",
    "--disable-quic", "--disable-dev-shm-usage", "--disable-extensions", "--mute-audio", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
# The browser reads commands from descriptor 3 and writes answers to 4.
_START = (
    "import fcntl, os, sys; r, w = (fcntl.fcntl(int(f), fcntl.F_DUPFD, 10) for f in sys.argv[1:3]); "
    "os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0
"""Seconds that an answer may take."""


def chromium() -> str | None:
    """The browser's program; None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class PageError(Exception):
    """An exception in the page, or an answer that did not come."""


class Page:
    """A page of a browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._poll = select.poll()
        self._poll.register(answers, select.POLLIN)
        self._number = 0
        self._waiting, self._before = b"", ""
        self.messages: list[str] = []  # of the console, and exceptions
        target = self._sent("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = ""
        self._session = self._sent("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command of the DevTools protocol."""
        return self._sent(method, params)

    def _sent(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        command: dict[str, Any] = {"id": number, "method": method, "params": params}
        if getattr(self, "_session", ""):
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        for message in self._incoming(method):
            if message.get("id") == number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']['message']}")
                found: dict[str, Any] = message["result"]
                return found
        raise AssertionError

    def _incoming(self, what: str) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + PATIENCE
        while True:
            while b"\0" not in self._waiting:
                ready = self._poll.poll(1000.0 * max(0.0, end - time.monotonic()))
                more = os.read(self._answers, 1 << 20) if ready else b""
                if not more:
                    raise PageError(f"no answer to {what} within {PATIENCE:.0f} s; the page said: {self.messages}")
                self._waiting += more
            line, _, self._waiting = self._waiting.partition(b"\0")
            message = json.loads(line)
            match message.get("method"):
                case "Runtime.consoleAPICalled":
                    self.messages.append(" ".join(str(a.get("value", "")) for a in message["params"]["args"]))
                case "Runtime.exceptionThrown":
                    self.messages.append(str(message["params"]["exceptionDetails"]))
                case "Log.entryAdded":
                    self.messages.append(str(message["params"]["entry"]["text"]))
            yield message

    def open(self, address: str, before: str = "") -> None:
        """Load a page; ``before`` is JavaScript that runs first, in this page only."""
        if self._before:
            self.send("Page.removeScriptToEvaluateOnNewDocument", identifier=self._before)
        self._before = ""
        if before:
            self._before = self.send("Page.addScriptToEvaluateOnNewDocument", source=before)["identifier"]
        self.messages.clear()
        self.send("Page.navigate", url=address)
        self.until('document.readyState !== "loading" && document.body')

    def evaluate(self, source: str) -> Any:
        """The value of a JavaScript expression, which may be a promise."""
        found = self.send("Runtime.evaluate", expression=source, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise PageError(str(found["exceptionDetails"].get("exception", {}).get("description", found)))
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        frames = f"new Promise(done => {{ const look = () => ({condition}) ? done(1) : setTimeout(look, 20); look(); }})"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                self.evaluate(frames)
                return
            except PageError as e:  # the page was being replaced
                if "context" not in str(e):
                    raise
        raise PageError(f"{condition} did not become true; the page said: {self.messages}")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """An event of the mouse: ``Pressed``, ``Moved`` or ``Released``."""
        held = 0 if kind == "Released" else 1
        self.send("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, button="left", buttons=held, clickCount=1)

    def touch(self, kind: str, points: Sequence[tuple[float, float]]) -> None:
        """An event of fingers: ``Start``, ``Move`` or ``End``."""
        self.send("Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=[{"x": x, "y": y} for x, y in points])

    def screenshot(self, width: int, height: int) -> bytes:
        """The page as a PNG."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser(profile: Path, *more: str) -> Iterator[Page]:
    """A new browser with one page.

    Args:
        profile: A new folder for its files.
        more: Further flags.
    """
    program = chromium()
    assert program is not None
    commands, answers = os.pipe(), os.pipe()
    flags = [*FLAGS, f"--user-data-dir={profile}", *more]
    with subprocess.Popen(
        [sys.executable, "-c", _START, str(commands[0]), str(answers[1]), program, *flags],
        pass_fds=(commands[0], answers[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        os.close(commands[0])
        os.close(answers[1])
        try:
            yield Page(commands[1], answers[0])
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGKILL)  # its own session: the browser and its children
            os.close(commands[1])
            os.close(answers[0])


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder that is served to this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
