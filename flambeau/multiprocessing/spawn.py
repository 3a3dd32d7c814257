"""Start several processes that run one function, and join them all or fail."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """One of the processes failed.

    Attributes:
        msg: what happened.
        error_index: the number of the process.
        error_pid: its process id.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The function raised; the text is the traceback."""


class ProcessExitedException(ProcessException):
    """The process ended with an exit code or by a signal.

    Attributes:
        exit_code: negative for a signal.
        signal_name: of the signal, or None.
    """

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        args = self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name
        return type(self), args


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], report: Connection) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        # The parent has it too.
        pass
    except Exception:
        report.send_bytes(pickle.dumps(traceback.format_exc()))
        sys.exit(1)


class ProcessContext:
    """The processes of one `start_processes`.

    Attributes:
        processes: the process objects.
        sentinels: handle -> number of the process, of those that are not joined yet.
    """

    def __init__(self, processes: list[Any], reports: list[Connection]) -> None:
        self.processes = processes
        self._reports = reports
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one of the processes ends.

        Args:
            timeout: seconds to wait.
            grace_period: seconds that the others have to end after one has failed, before they
                are terminated.

        Returns:
            Whether all have ended.

        Raises:
            ProcessRaisedException, ProcessExitedException: where one failed. The others are
                terminated then.
        """
        if not self.sentinels:
            return True
        failed = None
        for sentinel in wait(self.sentinels.keys(), timeout):
            index = self.sentinels.pop(sentinel)  # type: ignore[arg-type]
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        self._end_all(grace_period)
        raise self._failure(failed)

    def _end_all(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._wait_for_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._wait_for_all(30.0 if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                warnings.warn(
                    f"Unable to shutdown process {process.pid} via signal SIGTERM , forcefully "
                    "exiting via SIGKILL",
                    stacklevel=4,
                )
                process.kill()
            process.join()

    def _wait_for_all(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))

    def _failure(self, index: int) -> ProcessException:
        process = self.processes[index]
        report = self._reports[index]
        if report.poll(0):
            try:
                text = pickle.loads(report.recv_bytes())
                message = f"\n\n-- Process {index} terminated with the following error:\n{text}"
                return ProcessRaisedException(message, index, process.pid)
            except EOFError:
                pass
        code = process.exitcode
        if code >= 0:
            message = f"process {index} terminated with exit code {code}"
            return ProcessExitedException(message, index, process.pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        message = f"process {index} terminated with signal {name}"
        return ProcessExitedException(message, index, process.pid, code, name)


class SpawnContext(ProcessContext):
    """The old name of `ProcessContext`."""


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run ``fn(i, *args)`` in `nprocs` processes, i from 0.

    Args:
        fn: importable by name, unless the start method is "fork".
        args: for all of them.
        nprocs: how many.
        join: wait for all; otherwise the context is returned.
        daemon: end them when this process ends.
        start_method: "spawn", "fork" or "forkserver".

    Raises:
        ProcessRaisedException, ProcessExitedException: where one failed.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, reports = [], []
    for i in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        reports.append(ours)
    running = ProcessContext(processes, reports)
    if not join:
        return running
    while not running.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with fresh interpreters."""
    if start_method != "spawn":
        warnings.warn(
            "This method only supports start_method=spawn (got: "
            f"{start_method}).\nTo use a different start_method use:\n\t\t"
            " torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
