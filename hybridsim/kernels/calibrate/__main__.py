"""`python -m hybridsim.kernels.calibrate --model qwen3.5-0.8b --out profile.json`"""

from hybridsim.kernels.calibrate.program import main

if __name__ == "__main__":
    main()
