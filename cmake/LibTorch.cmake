# LibTorch as the target epl::libtorch: for the build of EPL, and, installed beside eplConfig.cmake,
# for the programs that use it. LibTorch's own TorchConfig.cmake asks for the build tools of all of
# Caffe2, so its three libraries are named here directly. A LibTorch outside of the system's folders,
# such as pytorch.org's zip, is found by CMAKE_PREFIX_PATH, or by Torch_DIR as that package is.
set(EPL_TORCH_ROOT "")
if(Torch_DIR)  # share/cmake/Torch of LibTorch
  get_filename_component(EPL_TORCH_ROOT ${Torch_DIR}/../../.. ABSOLUTE)
endif()
find_path(EPL_TORCH_INCLUDE ATen/ATen.h HINTS ${EPL_TORCH_ROOT}/include)
find_path(EPL_TORCH_API_INCLUDE torch/torch.h
  HINTS ${EPL_TORCH_INCLUDE} PATH_SUFFIXES torch/csrc/api/include)
find_library(EPL_TORCH_LIBRARY torch HINTS ${EPL_TORCH_ROOT}/lib)
find_library(EPL_TORCH_CPU_LIBRARY torch_cpu HINTS ${EPL_TORCH_ROOT}/lib)
find_library(EPL_C10_LIBRARY c10 HINTS ${EPL_TORCH_ROOT}/lib)
mark_as_advanced(EPL_TORCH_INCLUDE EPL_TORCH_API_INCLUDE EPL_TORCH_LIBRARY EPL_TORCH_CPU_LIBRARY
  EPL_C10_LIBRARY)

if(NOT EPL_TORCH_INCLUDE OR NOT EPL_TORCH_API_INCLUDE OR NOT EPL_TORCH_LIBRARY
    OR NOT EPL_TORCH_CPU_LIBRARY OR NOT EPL_C10_LIBRARY)
  set(message "epl: LibTorch was not found (Debian: apt-get install libtorch-dev)")
  if(CMAKE_FIND_PACKAGE_NAME STREQUAL "epl")
    set(epl_FOUND FALSE)
    set(epl_NOT_FOUND_MESSAGE ${message})
    return()
  endif()
  message(FATAL_ERROR ${message})
endif()

set(version_header ${EPL_TORCH_INCLUDE}/torch/headeronly/version.h)  # of later releases
if(NOT EXISTS ${version_header})
  set(version_header ${EPL_TORCH_API_INCLUDE}/torch/version.h)
endif()
file(STRINGS ${version_header} EPL_TORCH_VERSION REGEX "define TORCH_VERSION_M(AJOR|INOR) ")
string(REGEX REPLACE "[^0-9;]" "" EPL_TORCH_VERSION "${EPL_TORCH_VERSION}")
list(JOIN EPL_TORCH_VERSION . EPL_TORCH_VERSION)  # such as 1.13
# What its headers ask for.
file(STRINGS ${EPL_TORCH_INCLUDE}/ATen/ATen.h EPL_TORCH_CXX_STANDARD REGEX "__cplusplus < 202002L")
if(EPL_TORCH_CXX_STANDARD)
  set(EPL_TORCH_CXX_STANDARD 20)
else()
  set(EPL_TORCH_CXX_STANDARD 17)
endif()

if(NOT TARGET epl::libtorch)
  add_library(epl::libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(epl::libtorch SYSTEM INTERFACE
    ${EPL_TORCH_API_INCLUDE} ${EPL_TORCH_INCLUDE})
  # Zips of before 2.7 come with either ABI of the standard library.
  set(config ${EPL_TORCH_INCLUDE}/../share/cmake/Torch/TorchConfig.cmake)
  if(EXISTS ${config})
    file(STRINGS ${config} old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(old_abi)
      target_compile_definitions(epl::libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
    endif()
  endif()
  target_link_libraries(epl::libtorch INTERFACE
    ${EPL_TORCH_LIBRARY} ${EPL_TORCH_CPU_LIBRARY} ${EPL_C10_LIBRARY})
endif()
