"""Pages in a real Chromium without a window, for tests that look at web pages.

    with Browser() as browser:
        page = browser.open_page("http://127.0.0.1:8081/ui/")
        page.wait_for("document.querySelector('h1')")
        assert page.console_errors == []

The browser is the one of the Debian package `chromium`, and is driven by the DevTools protocol over a pipe: no port is opened,
and no package is needed. It can reach loopback only.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.process import die_with_parent
from tests.speed import Limit

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # Tests run as root, in containers.
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


class BrowserError(AssertionError):
    """The browser refused a command, or a script on a page raised."""


@dataclass(slots=True)
class PageRequest:
    """A request that a page sent. `status` is None until it is answered, and stays None if it fails."""

    method: str
    url: str
    status: int | None = None
    error: str | None = None


class Browser:
    """One Chromium process with a profile of its own. Ready when the constructor returns; `close` ends it."""

    def __init__(self) -> None:
        program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
        if program is None:
            raise RuntimeError("There is no Chromium. Install it (on Debian: apt-get install chromium).")
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-chromium-"))
        reads, self._to = _pipe()
        self._from, writes = _pipe()
        # The protocol's pipes are file descriptors 3 and 4 of the browser.
        command = ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes}', "chromium", program, *_FLAGS]
        with (self._folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--user-data-dir={self._folder}/profile", "about:blank"],
                pass_fds=(reads, writes),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
                env={**os.environ, "HOME": str(self._folder), "TMPDIR": str(self._folder)},
            )
        os.close(reads)
        os.close(writes)
        self._ids = itertools.count(1)
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="chromium-reader", daemon=True)
        self._reader.start()
        self.command("Browser.getVersion")

    def open_page(self, url: str = "about:blank", *, width: int = 1280, height: int = 800) -> Page:
        """Open a page in a new tab and wait until it is loaded."""
        target = self.command("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.command("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session, target)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.command(f"{domain}.enable")
        page.set_viewport(width, height)
        if url != "about:blank":
            page.goto(url)
        return page

    def command(
        self, method: str, params: dict[str, Any] | None = None, session: str | None = None, timeout_s: float = 60
    ) -> dict[str, Any]:
        """Send one command of the DevTools protocol and return its result."""
        number, answer = next(self._ids), Future[dict[str, Any]]()
        self._answers[number] = answer
        message = {"id": number, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
        with self._writing:
            _write_all(self._to, json.dumps(message).encode() + b"\0")
        found = answer.result(timeout_s)
        if "error" in found:
            raise BrowserError(f"{method}: {found['error']}")
        result: dict[str, Any] = found["result"]
        return result

    def _read(self) -> None:
        rest = b""
        while chunk := os.read(self._from, 1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in messages:
                self._on_message(json.loads(message))
        ended = BrowserError("Chromium has ended.")
        for answer in list(self._answers.values()):
            if not answer.done():
                answer.set_exception(ended)

    def _on_message(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers.pop(message["id"]).set_result(message)
        elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
            page.on_event(message["method"], message["params"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        for end in (self._to, self._from):
            os.close(end)
        # Its children may write for another moment.
        latest = time.monotonic() + 5
        while self._folder.exists() and time.monotonic() < latest:
            shutil.rmtree(self._folder, ignore_errors=True)
            time.sleep(0.05)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(eq=False)
class Page:
    """One tab. `console_errors` and `requests` grow while the page lives."""

    _browser: Browser
    _session: str
    _target: str
    console_errors: list[str] = field(default_factory=list)
    """Errors in the console: what scripts logged as an error, exceptions, failed loads, refusals of the security policy."""
    requests: list[PageRequest] = field(default_factory=list)
    _by_id: dict[str, PageRequest] = field(default_factory=dict)

    def command(self, method: str, params: dict[str, Any] | None = None, timeout_s: float = 60) -> dict[str, Any]:
        return self._browser.command(method, params, self._session, timeout_s)

    def goto(self, url: str, timeout_s: float = 30) -> None:
        """Load a URL, and wait until the page and what it refers to are loaded. For another fragment of the same page, that is at
        once."""
        found = self.command("Page.navigate", {"url": url})
        if found.get("errorText"):
            raise BrowserError(f"{url}: {found['errorText']}")
        self.wait_for("document.readyState === 'complete'", timeout_s)

    def reload(self, timeout_s: float = 30) -> None:
        self.evaluate("window.__tidegate_old = true")
        self.command("Page.reload")
        self.wait_for("!window.__tidegate_old && document.readyState === 'complete'", timeout_s)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression, as JSON knows it. A promise is awaited."""
        found = self.command(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True, "userGesture": True}
        )
        if "exceptionDetails" in found:
            raise BrowserError(_exception_text(found["exceptionDetails"]))
        return found["result"].get("value")

    def wait_for(self, script: str, timeout_s: float = 15) -> Any:
        """Wait until an expression is true, and return its value. Elements count as true."""
        limit = Limit(timeout_s)
        while True:
            try:
                # An element has no value in JSON.
                found = self.evaluate(f"(v => v instanceof Node ? true : v)({script})")
            except BrowserError as error:
                # The page is being replaced by the next one.
                if "context" not in str(error) and "navigated" not in str(error):
                    raise
                found = None
            if found:
                return found
            if limit.passed():
                raise BrowserError(
                    f"After {timeout_s:g} s this is not true: {script}\nErrors: {self.console_errors}\nThe page says:\n"
                    + self.text[:2000]
                )
            time.sleep(0.05)

    @property
    def text(self) -> str:
        """The visible text of the page."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def click(self, selector: str, timeout_s: float = 15) -> None:
        """Wait for an element, and click it."""
        chosen = f"document.querySelector({json.dumps(selector)})"
        self.wait_for(chosen, timeout_s)
        self.evaluate(f"{chosen}.click()")

    def press(self, key: str) -> None:
        """Press a key by its DevTools name, such as `Tab`, `Enter`, `Escape` or `j`."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        shared = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        shared |= {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        self.command("Input.dispatchKeyEvent", {"type": "keyDown", **shared})
        self.command("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})

    def set_viewport(self, width: int, height: int, *, mobile: bool = False, scale: float = 1) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile},
        )

    def emulate_dark(self, dark: bool = True) -> None:
        """Let the page believe that the user prefers dark colours, or light ones."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", {"features": [feature]})

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of the viewport, or of the `whole` page."""
        found = self.command("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._browser.command("Target.closeTarget", {"targetId": self._target})

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        """Called by the browser's reader, in its thread."""
        match method:
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.console_errors.append(" ".join(_argument_text(each) for each in params["args"]))
            case "Runtime.exceptionThrown":
                self.console_errors.append(_exception_text(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                entry = params["entry"]
                self.console_errors.append(f"{entry['text']} {entry.get('url', '')}".rstrip())
            case "Network.requestWillBeSent":
                request = PageRequest(params["request"]["method"], params["request"]["url"])
                self._by_id[params["requestId"]] = request
                self.requests.append(request)
            case "Network.responseReceived" if params["requestId"] in self._by_id:
                self._by_id[params["requestId"]].status = params["response"]["status"]
            case "Network.loadingFailed" if params["requestId"] in self._by_id:
                self._by_id[params["requestId"]].error = params["errorText"]


def _pipe() -> tuple[int, int]:
    """Both ends of a pipe, above the numbers that the browser's own ends get."""
    low = os.pipe()
    try:
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in low)
    finally:
        for end in low:
            os.close(end)
    return read, write


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _argument_text(argument: dict[str, Any]) -> str:
    return str(argument.get("value", argument.get("description", argument.get("type"))))


def _exception_text(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details["text"])
