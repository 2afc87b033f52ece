# `cmake --install build` and the CMake package: find_package(epl), then epl::epl.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(EPL_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/epl)

install(TARGETS epl EXPORT eplTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS epl-launch epl-plan epl-checkpoint RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/epl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/clusters DESTINATION ${CMAKE_INSTALL_DATADIR}/epl
  FILES_MATCHING PATTERN "*.json")
install(EXPORT eplTargets NAMESPACE epl:: DESTINATION ${EPL_PACKAGE_DIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/eplConfig.cmake.in
  ${PROJECT_BINARY_DIR}/eplConfig.cmake INSTALL_DESTINATION ${EPL_PACKAGE_DIR}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Until 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/eplConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/eplConfig.cmake ${PROJECT_BINARY_DIR}/eplConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake DESTINATION ${EPL_PACKAGE_DIR})
