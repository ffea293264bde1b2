"""A headless chromium, driven over its debugging pipe: no driver, no package, no network."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """The browser to test with: $GOSSAMER_CHROMIUM, or one on the path."""
    named = os.environ.get("GOSSAMER_CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Everything the page logs as an error, throws or asks of a network is kept."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._id, self._session = to, back, b"", 0, None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self._call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file in a window of this size and wait until it is loaded."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self._call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"still not true: {condition}"
            time.sleep(0.05)

    def point(self, x: float, y: float) -> None:
        """Move the mouse there."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """The window, or the whole page, as PNG."""
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def print(self, path: Path) -> None:
        """The page as PDF on A4."""
        data = self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._id:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], 100)
            piece = os.read(self._back, 1 << 20) if ready else b""
            assert piece, "the browser is gone or silent"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:500])
        elif (method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning")) or (
            method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning")
        ):
            self.errors.append(json.dumps(about)[:500])
        elif method == "Network.requestWillBeSent" and not about["request"]["url"].startswith(
            ("file:", "data:", "blob:")
        ):
            self.requests.append(about["request"]["url"])


@contextlib.contextmanager
def browser(executable: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, which ends with the block."""
    (child_in, to), (back, child_out) = os.pipe(), os.pipe()
    arguments = [
        executable, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run",
        "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
        "--disable-component-update", "--hide-scrollbars", "--no-proxy-server",
    ]  # fmt: skip
    # The browser listens on its descriptor 3 and answers on 4.
    script = f'exec 3<&{child_in} 4>&{child_out}; exec "$@"'
    process = subprocess.Popen(
        ["bash", "-c", script, "browser", *arguments],
        pass_fds=(child_in, child_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(child_in)
    os.close(child_out)
    try:
        yield Browser(to, back)
    finally:
        os.close(to)
        os.close(back)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
