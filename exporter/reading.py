"""Reading the settings again, where the file may lie on a mount that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress

from exporter.config import Config, ConfigError

PATIENCE = 10.0
"""Seconds for which a reading of the file is waited for."""


class SettingsReader:
    """Reads the settings in a thread that nobody has to wait for, least of all the end.

    Args:
        load: reads them; raises `ConfigError`.
        patience: seconds that it may take.
    """

    def __init__(self, load: Callable[[], Config], patience: float = PATIENCE) -> None:
        self._load = load
        self._patience = patience
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None
        self._answer: Future[Config] = Future()
        self._closed = False

    def read(self) -> Config:
        """Read them; called by one thread at a time.

        Raises:
            ConfigError: they are wrong, or can't be read in time.
        """
        if self._reading is not None and self._reading.is_alive():
            raise ConfigError("the file is still being read since the last attempt")
        with self._lock:
            answer = self._answer = Future()
            if self._closed:
                raise ConfigError("the daemon ends")
        self._reading = threading.Thread(
            target=self._run, args=(answer,), name="settings", daemon=True
        )
        try:
            self._reading.start()
        except RuntimeError as error:  # no memory, or too many threads
            self._reading = None
            raise ConfigError(str(error)) from error
        try:
            return answer.result(self._patience)
        except FutureTimeoutError as error:
            raise ConfigError(f"the file could not be read within {self._patience:g} s") from error

    def close(self) -> None:
        """Let nobody wait any longer."""
        with self._lock:
            self._closed = True
            with suppress(InvalidStateError):
                self._answer.set_exception(ConfigError("the daemon ends"))

    def _run(self, answer: Future[Config]) -> None:
        with suppress(InvalidStateError):  # it took too long, and the daemon ends
            try:
                config = self._load()
            except Exception as error:
                answer.set_exception(error)
            else:
                answer.set_result(config)
