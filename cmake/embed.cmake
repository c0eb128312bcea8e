# cmake -D INPUT=file -D OUTPUT=file.cpp -D NAME=symbol -P embed.cmake
#
# Writes a C++ file that holds the bytes of INPUT: mere::NAME(), a std::string_view.
get_filename_component(name ${INPUT} NAME)
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes
       "${bytes}")
file(WRITE ${OUTPUT} "// Made from ${name} by cmake/embed.cmake.
#include <string_view>

namespace mere {
namespace {
constexpr unsigned char kBytes[] = {
${bytes}
};
}  // namespace

std::string_view ${NAME}() {
  return {reinterpret_cast<const char*>(kBytes), sizeof kBytes};
}

}  // namespace mere
")
