"""`python -m hybridsim.kernels.calibrate --model qwen3.5-0.8b --out profile.json`"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from hybridsim.errors import UserError
from hybridsim.kernels.calibrate.options import parser
from hybridsim.terminal import EXIT_INTERRUPTED, errors_in_one_line

NEEDED = ("torch", "triton")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run; a mistake of the user's is one line and exit code 2, Ctrl-C one line and 130."""
    options = parser().parse_args(arguments)
    with errors_in_one_line():
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise UserError(
                "gpu", f"calibration needs {' and '.join(missing)}: pip install 'hybridsim[gpu]'"
            )
        # Imported late: what is above must work without torch.
        from hybridsim.kernels.calibrate.program import run

        try:
            run(options)
        except KeyboardInterrupt:
            sys.stderr.write(f"interrupted; the same command goes on from {options.out}\n")
            sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
