#!/bin/bash
# Sets up the engines' cache code (0.33.0 and 0.27.1) in an environment of its own.
# usage: setup_vllm.sh ORACLE_SOURCE DIR
#   ORACLE_SOURCE: folder with the oracle's driver, its pins and its own setup.sh
#   DIR: where the environment goes (about 2 GB, 5 minutes)
set -euo pipefail
if [ $# -ne 2 ]; then
  echo "usage: $0 ORACLE_SOURCE DIR" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The driver's setup writes next to itself, and its source may be read-only.
cp -r "$1/." "$work/"
bash "$work/setup.sh" "$2"
echo "ready: python -m conformance.vllm random --oracle $2"
