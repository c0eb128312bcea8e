# Run by cpack on the tree it has installed, before it packs it.
cmake_policy(VERSION 3.25)
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})

# Copies the licence notes of the Debian packages that own `libs`.
function(copy_licences libs destination)
  find_program(dpkg_query dpkg-query)
  if(NOT dpkg_query)
    message(FATAL_ERROR "dpkg-query is needed to find the licences of the bundled libraries")
  endif()
  file(MAKE_DIRECTORY ${destination})
  foreach(lib IN LISTS libs)
    # dpkg knows a library by its path of before or after /lib became a link to /usr/lib.
    file(REAL_PATH ${lib} real)
    string(REGEX REPLACE "^/usr/" "/" short ${real})
    execute_process(COMMAND ${dpkg_query} -S ${real} ${short} OUTPUT_VARIABLE owner ERROR_QUIET)
    string(REGEX MATCH "^[a-z0-9.+-]+" package "${owner}")
    if(NOT package OR NOT EXISTS /usr/share/doc/${package}/copyright)
      message(FATAL_ERROR "no licence found for ${lib} (package '${package}')")
    endif()
    file(COPY_FILE /usr/share/doc/${package}/copyright ${destination}/${package}.txt)
  endforeach()
endfunction()

if(CPACK_GENERATOR STREQUAL DEB)
  # A private folder: nothing else on the system may pick up this BLAS. dpkg-shlibdeps is told of
  # it, so that it asks no package for these.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${root}/usr/lib/mere.run)
  file(GLOB libs ${root}/usr/lib/*.so*)
  file(MAKE_DIRECTORY ${root}/usr/lib/mere.run)
  foreach(lib IN LISTS libs)
    get_filename_component(name ${lib} NAME)
    file(RENAME ${lib} ${root}/usr/lib/mere.run/${name})
  endforeach()
  # Debian wants one file of that name; it points to the others.
  set(doc ${root}/usr/share/doc/mere.run)
  set(copyright "mere.run\n\n")
  file(GLOB licences ${doc}/LICENSE* ${doc}/NOTICE*)
  foreach(licence IN LISTS licences)
    file(READ ${licence} text)
    string(APPEND copyright "${text}\n")
  endforeach()
  string(APPEND copyright
    "The libraries in /usr/lib/mere.run: licenses/mlx beside this file.\n"
    "The models in /usr/share/mere.run/models: LICENSE* and README.md beside each.\n")
  file(WRITE ${doc}/copyright "${copyright}")
elseif(CPACK_GENERATOR STREQUAL TGZ)
  # Every library but glibc's, which must be the machine's own.
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES ${root}/bin/mere.run
    RESOLVED_DEPENDENCIES_VAR libs
    UNRESOLVED_DEPENDENCIES_VAR missing
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|mvec|dl|rt|pthread|resolv|util)\\.so\\.[0-9]+$")
  if(missing)
    message(FATAL_ERROR "libraries not found: ${missing}")
  endif()
  set(bundled)
  foreach(lib IN LISTS libs)
    get_filename_component(name ${lib} NAME)
    if(NOT EXISTS ${root}/lib/${name})
      file(REAL_PATH ${lib} real)
      file(COPY_FILE ${real} ${root}/lib/${name})
      list(APPEND bundled ${lib})
    endif()
  endforeach()
  copy_licences("${bundled}" ${root}/share/doc/mere.run/licenses)
endif()
