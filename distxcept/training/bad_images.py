"""Images that could not be read, gathered from all ranks and told once each."""

import json

from distxcept.training.build import Training
from distxcept.training.events import Observer


class BadImages:
    def __init__(self, training: Training, observer: Observer):
        self._engine, self._observer = training.engine, observer
        self._fresh: list[tuple[int, str, str]] = []
        self._known: set[str] = set()

    def found(self, index: int, path: str, reason: str) -> None:
        """Called by the pipeline of this rank."""
        self._fresh.append((index, path, reason))

    def report(self) -> None:
        """Every rank has to call it; the chief tells the observer what is new."""
        everywhere = self._engine.exchange(json.dumps(self._fresh).encode())
        self._fresh = []
        for index, path, reason in sorted(
            tuple(bad) for message in everywhere for bad in json.loads(message)
        ):
            if path not in self._known and self._engine.is_chief:
                self._observer.bad_image(index, path, reason)
            self._known.add(path)
