# Two trees have one shape: bin/mere.run, lib/ with the engine, share/mere.run/models.
# The program finds its model by <executable>/../share and its libraries by the rpath below, so both
# trees can be moved.

# Build tree: the models are the source's own.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/mere.run)
file(REMOVE ${CMAKE_BINARY_DIR}/share/mere.run/models)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/models ${CMAKE_BINARY_DIR}/share/mere.run/models SYMBOLIC)

# Installed tree. lib/mere.run is where the .deb keeps the engine, lib where everything else does.
# The old kind of rpath (DT_RPATH) is on purpose: it also serves the libraries that our libraries
# need, which the .tar.gz carries and which have no rpath of their own.
set_target_properties(mere.run PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/mere.run:$ORIGIN/../lib")
target_link_options(mere.run PRIVATE -Wl,--disable-new-dtags)

install(TARGETS mere.run RUNTIME DESTINATION bin COMPONENT program)
install(FILES ${MERE_MLX_ROOT}/mlx/lib/libmlx.so ${MERE_MLX_SUPPORT_LIBS} DESTINATION lib
        COMPONENT program)
install(DIRECTORY models/ DESTINATION share/mere.run/models COMPONENT program)
file(GLOB MERE_TOP_DOCS CONFIGURE_DEPENDS README.md LICENSE* NOTICE*)
install(FILES ${MERE_TOP_DOCS} DESTINATION share/doc/mere.run COMPONENT program)
install(DIRECTORY docs DESTINATION share/doc/mere.run COMPONENT program)
file(GLOB MERE_MLX_LICENSES ${MERE_MLX_ROOT}/*.dist-info/licenses/*)
install(FILES ${MERE_MLX_LICENSES} DESTINATION share/doc/mere.run/licenses/mlx COMPONENT program)
# What the wheel bundles beside libmlx.so, by package and version.
file(GLOB MERE_MLX_SBOMS ${MERE_MLX_ROOT}/*.dist-info/sboms/*)
if(MERE_MLX_SBOMS)
  install(FILES ${MERE_MLX_SBOMS} DESTINATION share/doc/mere.run/licenses/mlx COMPONENT program)
endif()

# Packages: cmake/package.cmake turns the installed tree into what each of the two needs.
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME mere.run)
set(CPACK_PACKAGE_VENDOR mere.run)
set(CPACK_PACKAGE_CONTACT "The mere.run authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "local AI runtime: pictures from words on this machine")
string(CONCAT CPACK_PACKAGE_DESCRIPTION
  "One program that runs generative models on this machine, without Python, accounts or a network. "
  "A tiny image model comes with it.")
set(CPACK_PACKAGE_FILE_NAME mere.run-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_MONOLITHIC_INSTALL ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/package_options.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION graphics)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Loaded by name at the first download, so that dpkg-shlibdeps does not see it.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libcurl4 | libcurl4t64, ca-certificates")
include(CPack)
