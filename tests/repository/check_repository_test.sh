#!/usr/bin/env bash
# check_repository.sh must pass a clean folder and name each kind of breach.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check_repository.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Not a work tree of git, whatever surrounds the temporary folder.
export GIT_CEILING_DIRECTORIES=$folder

mkdir "$folder/scripts"
: >"$folder/empty"
printf 'text\n' >"$folder/a file.md"
"$check" "$folder"

# expect TEXT FILE: the folder with FILE in it is refused with TEXT.
expect() {
  if output=$("$check" "$folder"); then
    echo "not refused: $2"
    exit 1
  fi
  if [ "$output" != "$2: $1" ]; then
    echo "expected '$2: $1', got: $output"
    exit 1
  fi
  rm "$folder/$2"
}
head -c 20000001 /dev/zero >"$folder/big.bin"
expect "is over 20 MB; models of that size are downloaded, not committed" big.bin
printf '\177ELF\2\1\1' >"$folder/program"
expect "is a binary program" program
printf '#!/bin/sh\n' >"$folder/script"
expect "is a script without the executable bit" script
ln -s empty "$folder/link"
expect "is a symbolic link; packages and archives lose those" link
: >"$folder/a b.o"
expect "is a product of a build or an editor" "a b.o"
printf 'text\r\n' >"$folder/dos.md"
expect "ends lines with CR LF" dos.md
printf '%s HEAD\n' '<<<<<<<' >"$folder/merge.cpp"
expect "has a merge conflict marker" merge.cpp
printf 'fetch http%s//example.org\n' s: >"$folder/scripts/fetch"
expect "names a host; apt and pip know where to fetch from" scripts/fetch
echo "each kind of breach is found"
