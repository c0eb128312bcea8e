#include "cli/table.h"

#include <algorithm>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>

namespace mere::cli {

std::string table_text(const std::vector<std::vector<std::string>>& rows, int columns) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    if (row.size() > widths.size()) widths.resize(row.size(), 0);
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    while (line.ends_with(' ')) line.pop_back();
    if (columns > 0 && line.size() > static_cast<size_t>(columns)) {
      line.resize(static_cast<size_t>(columns));
      // Not in the middle of a character.
      while (!line.empty() && (static_cast<unsigned char>(line.back()) & 0x80) != 0) {
        line.pop_back();
      }
    }
    text += line + "\n";
  }
  return text;
}

int stdout_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace mere::cli
