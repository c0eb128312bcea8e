# mere_layer(NAME DEPS layer... SOURCES file... [LIBS library...] [MLX])
#
# One static library per folder of src/. DEPS is the layering rule of docs/architecture.md; a test
# (tests/layers) checks that no file includes a folder outside it. MLX marks the layers that see
# MLX headers: they share one precompiled header.
define_property(GLOBAL PROPERTY MERE_LAYER_RULES BRIEF_DOCS "see tests/layers" FULL_DOCS
                "per layer: its folder, 'mlx' or '-', the folders it may include")

function(mere_layer name)
  cmake_parse_arguments(ARG "MLX" "" "DEPS;SOURCES;LIBS" ${ARGN})
  add_library(mere_${name} STATIC ${ARG_SOURCES})
  target_include_directories(mere_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(mere_${name} PUBLIC mere_flags)
  file(RELATIVE_PATH rule ${CMAKE_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(mere_${name} PROPERTIES MERE_FOLDER ${rule})
  if(ARG_MLX)
    string(APPEND rule " mlx")
  else()
    string(APPEND rule " -")
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(mere_${name} PUBLIC mere_${dep})
    get_target_property(folder mere_${dep} MERE_FOLDER)
    string(APPEND rule " ${folder}")
  endforeach()
  target_link_libraries(mere_${name} PRIVATE ${ARG_LIBS})
  if(ARG_MLX)
    target_link_libraries(mere_${name} PUBLIC mere_mlx)
    mere_use_mlx_header(mere_${name})
  else()
    target_precompile_headers(mere_${name} REUSE_FROM mere_json_header)
  endif()
  set_property(GLOBAL APPEND PROPERTY MERE_LAYER_RULES "${rule}")
endfunction()

# The MLX umbrella header and the JSON library take seconds to parse; precompile them once for all
# layers that see MLX. The other layers share a precompiled header with JSON alone.
file(WRITE ${CMAKE_BINARY_DIR}/mlx_header.cpp "// owner of the precompiled MLX header\n")
add_library(mere_mlx_header OBJECT ${CMAKE_BINARY_DIR}/mlx_header.cpp)
target_link_libraries(mere_mlx_header PUBLIC mere_flags mere_mlx)
target_precompile_headers(mere_mlx_header PRIVATE <mlx/mlx.h> <nlohmann/json.hpp>)

file(WRITE ${CMAKE_BINARY_DIR}/json_header.cpp "// owner of the precompiled JSON header\n")
add_library(mere_json_header OBJECT ${CMAKE_BINARY_DIR}/json_header.cpp)
target_link_libraries(mere_json_header PUBLIC mere_flags nlohmann_json::nlohmann_json)
target_precompile_headers(mere_json_header PRIVATE <nlohmann/json.hpp>)

# Every user compiles with the flags of the header's owner, -fPIC and -fopenmp included; the compiler
# ignores a precompiled header otherwise.
function(mere_use_mlx_header target)
  target_precompile_headers(${target} REUSE_FROM mere_mlx_header)
endfunction()
