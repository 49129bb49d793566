"""Talks to the worker in the oracle's environment; starts it once, since that takes 15 s."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

WORKER = Path(__file__).with_name("worker.py")


class Oracle:
    """The engine's own code, as a process. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        python = folder.resolve() / "venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [str(python), str(WORKER), str(folder.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def facts(self, config: dict[str, Any], trace: list[dict[str, Any]]) -> dict[str, Any]:
        """`{"facts": [one a request], "sane": ...}` for one server and one trace."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"config": config, "trace": trace}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the oracle's worker ended, status {self._process.poll()}")
        result: dict[str, Any] = json.loads(answer)
        return result
