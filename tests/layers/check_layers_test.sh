#!/usr/bin/env bash
# check_layers.sh must pass a lawful tree and name each kind of breach.
set -euo pipefail
check=$(dirname "$0")/check_layers.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

mkdir -p "$tree"/src/{core,media,families/one,families/two}
printf 'core - \nmedia - core\nfamilies/one mlx core\nfamilies/two mlx core\n' >"$tree/rules"
: >"$tree/src/core/core.h"
: >"$tree/src/families/one/one.h"
printf '#include <vector>\n#include "core/core.h"\n' >"$tree/src/media/media.cpp"
printf '#include <mlx/mlx.h>\n#include "families/one/one.h"\n' >"$tree/src/families/one/one.cpp"
"$check" "$tree/src" "$tree/rules"

# expect TEXT FILE LINE: FILE with the line LINE is refused with TEXT.
expect() {
  printf '%s\n' "$3" >"$tree/src/$2"
  if output=$("$check" "$tree/src" "$tree/rules"); then
    echo "not refused: $3 in $2"
    exit 1
  fi
  if [[ $output != *"$1"* ]]; then
    echo "expected '$1' in: $output"
    exit 1
  fi
  rm "$tree/src/$2"
}
expect "families/two includes families/one/one.h" families/two/two.cpp '#include "families/one/one.h"'
expect "core includes families/one/one.h" core/up.cpp '#  include "families/one/one.h"'
expect "media includes <mlx/array.h>" media/gpu.cpp '#include <mlx/array.h>'
expect "is not a file" core/gone.cpp '#include "core/gone.h"'
expect "is in no layer" families/stray.cpp '#include <vector>'
echo "each kind of breach is found"
