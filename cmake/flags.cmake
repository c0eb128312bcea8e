# Compiler flags shared by every target. Never -ffast-math: results are compared bit by bit.
add_library(mere_flags INTERFACE)
target_link_libraries(mere_flags INTERFACE OpenMP::OpenMP_CXX)
target_compile_options(mere_flags INTERFACE -Wall -Wextra $<$<BOOL:${MERE_WERROR}>:-Werror>)
# GCC 12 reports overlapping copies inside std::string that cannot happen (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(mere_flags INTERFACE -Wno-restrict)
endif()
if(MERE_SANITIZE)
  target_compile_options(mere_flags INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all)
  target_link_options(mere_flags INTERFACE -fsanitize=address,undefined)
  # The checks that a sanitizer adds make GCC lose track of what std::optional holds.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(mere_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
# The kernels are compiled once per instruction set: AVX2, AVX-512, NEON and the plainest. Between
# AVX2 and that one lie only processors of before 2013; SVE's vectors cannot be array elements.
target_compile_definitions(mere_flags INTERFACE
  "HWY_DISABLED_TARGETS=(HWY_SSE4|HWY_SSSE3|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
if(MERE_FUZZ)
  target_compile_options(mere_flags INTERFACE -fsanitize=fuzzer-no-link)
  # The kernels are not fuzzed: the plainest is enough.
  target_compile_definitions(mere_flags INTERFACE HWY_COMPILE_ONLY_SCALAR)
endif()
