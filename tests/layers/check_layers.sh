#!/usr/bin/env bash
# check_layers.sh SRC RULES: exit 1 and one line for each #include under SRC that breaks the rules.
#
# RULES has a line for each layer: its folder, "mlx" or "-" (may it include MLX's headers), and the
# folders it may include beside its own.
set -euo pipefail
src=$1
rules=$2

find "$src" -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.inc' \) -printf '%P\n' | sort |
  awk -v src="$src" -v rules="$rules" '
    # The layer of a path: the longest folder that is a layer.
    function layer_of(path,   folder) {
      folder = path
      while (sub(/\/[^\/]*$/, "", folder)) if (folder in may) return folder
      return ""
    }
    function breach(text) { print file ":" line ": " text; breaches++ }
    BEGIN {
      while ((getline text < rules) > 0) {
        n = split(text, word, " ")
        if (n < 2) continue
        may[word[1]] = " " word[1] " "
        mlx[word[1]] = word[2] == "mlx"
        for (i = 3; i <= n; i++) may[word[1]] = may[word[1]] word[i] " "
      }
    }
    {
      file = $0; line = 0; files++
      from = layer_of(file)
      if (from == "") { breach("is in no layer"); next }
      path = src "/" file
      while ((getline text < path) > 0) {
        line++
        if (text !~ /^[ \t]*#[ \t]*include[ \t]*["<]/) continue
        header = text
        sub(/^[^"<]*["<]/, "", header)
        sub(/[">].*$/, "", header)
        if (header ~ /^mlx\// && !mlx[from])
          breach(from " includes <" header "> but is no MLX layer")
        if (text !~ /"/ || header ~ /^mlx\//) continue
        if ((getline unused < (src "/" header)) < 0) {
          breach("\"" header "\" is not a file under src/")
          continue
        }
        close(src "/" header)
        to = layer_of(header)
        if (index(may[from], " " to " ") == 0)
          breach(from " includes " header " but does not name " to " in DEPS")
      }
      close(path)
    }
    END {
      if (files == 0) { print "no source file under " src; exit 1 }
      if (breaches) exit 1
      print files " files keep to their layers"
    }'
