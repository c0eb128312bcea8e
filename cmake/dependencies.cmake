# Libraries from the system, and the MLX engine unpacked by scripts/setup into .deps/mlx.
set(MERE_MLX_ROOT ${CMAKE_SOURCE_DIR}/.deps/mlx CACHE PATH "Folder of the unpacked mlx-cpu wheel")
if(NOT EXISTS ${MERE_MLX_ROOT}/mlx/lib/libmlx.so)
  message(FATAL_ERROR "MLX is not in ${MERE_MLX_ROOT}; run scripts/setup first.")
endif()

# The wheel's BLAS and Fortran libraries are linked by name so that the program's own rpath finds
# them wherever they are installed.
file(GLOB MERE_MLX_SUPPORT_LIBS CONFIGURE_DEPENDS ${MERE_MLX_ROOT}/mlx_cpu.libs/*.so*)
add_library(mere_mlx INTERFACE)
target_include_directories(mere_mlx SYSTEM INTERFACE ${MERE_MLX_ROOT}/mlx/include)
target_link_libraries(mere_mlx INTERFACE -Wl,--no-as-needed ${MERE_MLX_ROOT}/mlx/lib/libmlx.so
                                         ${MERE_MLX_SUPPORT_LIBS} -Wl,--as-needed)

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CURL REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)
