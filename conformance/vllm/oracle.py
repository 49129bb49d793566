"""The engine's own code in a process of its own, asked one job at a time."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

Row = dict[str, Any]
SOURCES = {"0.33.0": "src", "0.27.1": "src27"}


class Oracle:
    """A worker process for one release; `directory` is what `setup_vllm.sh` made."""

    def __init__(self, directory: Path, version: str) -> None:
        self.version = version
        worker = Path(__file__).with_name("worker.py")
        self._process = subprocess.Popen(
            [directory / "venv" / "bin" / "python", worker, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(directory / SOURCES[version])},
        )

    def answer(self, config: Row, trace: list[Row], digest_every: int = 1) -> Row:
        """What the engine does with this job, with a digest of the pool every so many steps.

        Raises RuntimeError when the process is gone.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        job = {"config": config, "trace": trace, "digest_every": digest_every}
        print(json.dumps(job), file=stdin, flush=True)
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle of {self.version} ended with {self._process.wait()}")
        answer: Row = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
