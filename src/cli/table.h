// Lines of words under each other, for results that people read.
#pragma once

#include <string>
#include <vector>

namespace mere::cli {

// Every row's words padded to the widest of their column, two blanks between; the last column is
// not padded. With `columns` above 0 lines are cut to that many.
std::string table_text(const std::vector<std::vector<std::string>>& rows, int columns = 0);

// Columns of the terminal that stdout is; 0 when it is none.
int stdout_columns();

}  // namespace mere::cli
