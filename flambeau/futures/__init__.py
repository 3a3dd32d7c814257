"""Results that come later: a value that callbacks and waiting threads see once it is set."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value, or an exception, that is set once.

    Args:
        devices: where the value's tensors may be; the CPU needs none.
    """

    def __init__(self, *, devices: list[Any] | None = None) -> None:
        self._devices = list(devices or [])
        self._condition = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def done(self) -> bool:
        """Whether the value is there."""
        return self._done

    def wait(self) -> T:
        """Block until it is there and return it; an exception that was set is raised."""
        with self._condition:
            self._condition.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """The value, which must be there."""
        if not self._done:
            raise RuntimeError("future is not completed: call wait() or then() first")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._condition:
            if self._done:
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again. Note that a Future "
                    "can only be marked completed once."
                )
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            callback(self)

    def set_result(self, result: T) -> None:
        """Set the value and run the callbacks."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an exception, to be raised by `wait`."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call callback(self) once the value is there."""
        with self._condition:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of callback(self), called once the value is there."""
        following: Future[S] = Future(devices=self._devices)

        def run(done: Future[T]) -> None:
            try:
                value = callback(done)
            except Exception as error:
                following.set_exception(error)
            else:
                following.set_result(value)

        self.add_done_callback(run)
        return following


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list of futures, set once all of them are."""
    whole: Future[list[Future[Any]]] = Future()
    left = len(futures)
    lock = threading.Lock()

    def one(_: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            whole.set_result(futures)

    if not futures:
        whole.set_result(futures)
    for future in futures:
        future.add_done_callback(one)
    return whole


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The values of all futures; the first exception is raised."""
    return [future.wait() for future in collect_all(futures).wait()]
