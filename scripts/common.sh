# Sourced by ./demo, ./test and scripts/*: the root of the clone, and how to speak and to stop.
# shellcheck shell=bash
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$ROOT"

say() { printf '==> %s\n' "$*" >&2; }

# die MESSAGE HINT: one line each, then exit 1.
die() {
  printf 'error: %s\n' "$1" >&2
  if [ $# -gt 1 ]; then printf '       %s\n' "$2" >&2; fi
  exit 1
}

# Compiling against the engine's headers takes about 1 GB a process: as many jobs as cores, fewer
# where memory is short.
jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable/ { print int($2 / 1000000) }' /proc/meminfo)
  if [ "$memory_gb" -lt "$cores" ]; then cores=$memory_gb; fi
  if [ "$cores" -lt 1 ]; then cores=1; fi
  echo "$cores"
}
