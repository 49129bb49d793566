"""Runs on this machine: one after another in this process, or in N processes side by side.

A process that dies takes only its own run with it. Nothing here knows what a run is.
"""

import multiprocessing as mp
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from hybridsim.files import WriteError
from hybridsim.sweep.events import Advanced, Event, Failed, Finished, OnEvent, Work

# Forked workers share the parsed traces with their parent. macOS has fork, but not safely.
_METHOD = "fork" if sys.platform == "linux" else "spawn"


def run_serial(work: Work, indices: Sequence[int], on_event: OnEvent) -> None:
    """One run after another in this process."""
    for index in indices:
        _attempt(work, index, on_event)


def run_processes(work: Work, indices: Sequence[int], on_event: OnEvent, num_jobs: int) -> None:
    """At most `num_jobs` runs at a time, each in a process that takes the next when done."""
    todo = list(reversed(indices))
    workers = [_Worker(work) for _ in range(min(num_jobs, len(todo)))]
    try:
        for worker in workers:
            worker.start(todo.pop())
        while busy := {worker.connection: worker for worker in workers if worker.index is not None}:
            for connection in wait(list(busy)):
                worker = busy[connection]
                event = worker.receive()
                on_event(event)
                if isinstance(event, Advanced):
                    continue
                if worker.has_died:
                    workers.remove(worker)
                    worker = _Worker(work)
                    workers.append(worker)
                worker.start(todo.pop() if todo else None)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process and the run that it has in hand (`index`, None when idle)."""

    def __init__(self, work: Work) -> None:
        context: Any = mp.get_context(_METHOD)
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(work, theirs, self.connection), daemon=True
        )
        self._process.start()
        theirs.close()  # so that the end of the process is an end of file here
        self.index: int | None = None
        self.has_died = False

    def start(self, index: int | None) -> None:
        self.index = index
        if index is not None:
            self.connection.send(index)

    def receive(self) -> Event:
        """The next event; the death of the process is one too."""
        assert self.index is not None
        try:
            event: Event = self.connection.recv()
        except (EOFError, OSError):
            self.has_died = True
            self._process.join()
            code = self._process.exitcode
            return Failed(self.index, f"its process died (exit code {code}; -9 is a kill)", "")
        return event

    def stop(self) -> None:
        """End the process, whatever it is doing. A run in hand leaves nothing behind."""
        self._process.terminate()
        self._process.join()
        self.connection.close()


def _serve(work: Work, connection: Connection, parents_end: Connection) -> None:
    """Life of a worker: ends when its parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    parents_end.close()  # else this process itself would keep the pipe open
    try:
        while True:
            _attempt(work, connection.recv(), connection.send)
    except (EOFError, OSError):
        return


def _attempt(work: Work, index: int, on_event: OnEvent) -> None:
    try:
        work(index, lambda num_requests: on_event(Advanced(index, num_requests)))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        stops = error if isinstance(error, WriteError) else None
        on_event(Failed(index, reason, traceback.format_exc(), stops))
    else:
        on_event(Finished(index))
