"""A headless Chromium, spoken to in its own protocol over two pipes: no driver, no network, no package needed."""

import json
import os
import select
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

TIMEOUT_SECONDS = 120.0
# The page itself looks, so that nobody takes its time by asking.
READY = f"""new Promise(tell => {{
  const look = left => {{
    if (document.documentElement.dataset.ready === "yes" || !left) tell(left > 0);
    else setTimeout(look, 10, left - 1);
  }};
  look({TIMEOUT_SECONDS * 50:.0f});
}})"""


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    def __init__(self, *, width: int = 1200, height: int = 900):
        program = find_chromium()
        assert program, "no Chromium"
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command_read, self._commands = os.pipe()
        self._answers, answer_write = os.pipe()
        # Chromium listens on descriptor 3 and answers on 4.
        script = (
            f'exec 3<&{command_read} 4>&{answer_write}; exec "$0" --headless --no-sandbox --disable-gpu '
            f"--disable-dev-shm-usage --no-first-run --user-data-dir={self._profile.name} --window-size={width},{height} "
            "--remote-debugging-pipe about:blank"
        )
        self._process = subprocess.Popen(
            ["bash", "-c", script, program],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self._buffer, self._number = b"", 0
        self.messages: list[str] = []
        """Everything that the page wrote to the console, and errors."""
        self.requests: list[str] = []
        """Addresses that the page asked for."""
        self._session: str | None = None
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._session = None
        with suppress(OSError, AssertionError):
            self.call("Browser.close")
        os.close(self._commands)
        try:
            self._process.wait(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._profile.cleanup()

    def open(self, path: Path) -> None:
        """Returns when the page says that it is ready."""
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._note(self._next())
        assert self.run(READY), f"the page does not get ready: {self.messages}"

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", pointerType="mouse", **more)

    def drag(self, x0: float, x1: float, y: float) -> None:
        self.mouse("mouseMoved", x0, y, buttons=0)
        self.mouse("mousePressed", x0, y, clickCount=1, buttons=1)
        self.mouse("mouseMoved", (x0 + x1) / 2, y, buttons=1)
        self.mouse("mouseMoved", x1, y, buttons=1)
        self.mouse("mouseReleased", x1, y, clickCount=1, buttons=0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._answers], [], [], TIMEOUT_SECONDS)[0], (
                f"no answer in {TIMEOUT_SECONDS:g} s"
            )
            part = os.read(self._answers, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, details = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(str([argument.get("value") for argument in details["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(details["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(details["entry"]["text"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
