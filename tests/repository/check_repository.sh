#!/usr/bin/env bash
# check_repository.sh ROOT: what must never be committed, one line for each breach, exit 1.
set -euo pipefail
cd "$1"

# Without git (an unpacked source archive) everything but what the build makes is looked at.
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  list() { git ls-files -z --cached --others --exclude-standard; }
else
  list() { find . \( -name .git -o -name .deps -o -name dist -o -name 'build*' \) -prune -o \( -type f -o -type l \) -printf '%P\0'; }
fi

breaches=0 files=0
breach() {
  echo "$1: $2"
  breaches=$((breaches + 1))
}

while IFS= read -r -d '' file; do
  [ -e "$file" ] || [ -L "$file" ] || continue
  files=$((files + 1))
  if [ -L "$file" ]; then
    breach "$file" "is a symbolic link; packages and archives lose those"
    continue
  fi
  case $file in
    *.o | *.a | *.so | *.so.* | *.whl | *.pyc | *.deb | *.tar.gz | *.orig | *.rej | *~)
      breach "$file" "is a product of a build or an editor" ;;
  esac
  start=
  IFS= LC_ALL=C read -r -d '' -n 4 start <"$file" || true
  if [ "$start" = $'\177ELF' ]; then breach "$file" "is a binary program"; fi
  if [ "${start:0:2}" = '#!' ] && [ ! -x "$file" ] && [[ $file != *.py ]]; then
    breach "$file" "is a script without the executable bit"
  fi
done < <(list)

while IFS= read -r -d '' file; do
  breach "$file" "is over 20 MB; models of that size are downloaded, not committed"
done < <(list | xargs -0 sh -c \
  'find "$@" -maxdepth 0 -type f -size +20000000c -print0 2>/dev/null' find || true)

# Text that was never meant to be there.
look() {
  local hint=$1 pattern=$2
  shift 2
  local found
  while IFS= read -r found; do breach "$found" "$hint"; done < <(
    list | xargs -0 grep -lIE "$pattern" -- 2>/dev/null | grep -E "$1" || true)
}
look "has a merge conflict marker" '^(<{7}|>{7}) ' '.'
look "ends lines with CR LF" $'\r$' '\.(cpp|h|cmake|sh|md|txt)$'
look "holds a private key" '-{5}BEGIN ([A-Z]+ )?PRIVATE KEY-{5}' '.'
# Packages come from wherever apt and pip are set up to fetch them.
look "names a host; apt and pip know where to fetch from" 'https?://' \
  '^(demo|test|Makefile|scripts/.*|cmake/.*|\.ci/.*|CMakeLists\.txt)$'

if [ "$breaches" -gt 0 ]; then exit 1; fi
if [ "$files" -eq 0 ]; then echo "no file found under $1" && exit 1; fi
echo "$files files, nothing that must not be there"
