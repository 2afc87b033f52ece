# LibTorch as the target epl::libtorch: for the build of EPL, and, installed beside eplConfig.cmake,
# for the programs that use it. LibTorch's own TorchConfig.cmake asks for the build tools of all of
# Caffe2, so its three libraries are named here directly. A LibTorch outside of the system's folders is
# found by CMAKE_PREFIX_PATH.
find_path(EPL_TORCH_INCLUDE ATen/ATen.h)
find_path(EPL_TORCH_API_INCLUDE torch/torch.h
  HINTS ${EPL_TORCH_INCLUDE} PATH_SUFFIXES torch/csrc/api/include)
find_library(EPL_TORCH_LIBRARY torch)
find_library(EPL_TORCH_CPU_LIBRARY torch_cpu)
find_library(EPL_C10_LIBRARY c10)
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

file(STRINGS ${EPL_TORCH_API_INCLUDE}/torch/version.h EPL_TORCH_VERSION
  REGEX "define TORCH_VERSION_M(AJOR|INOR) ")
string(REGEX REPLACE "[^0-9;]" "" EPL_TORCH_VERSION "${EPL_TORCH_VERSION}")
list(JOIN EPL_TORCH_VERSION . EPL_TORCH_VERSION)  # such as 1.13

if(NOT TARGET epl::libtorch)
  add_library(epl::libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(epl::libtorch SYSTEM INTERFACE
    ${EPL_TORCH_API_INCLUDE} ${EPL_TORCH_INCLUDE})
  target_link_libraries(epl::libtorch INTERFACE
    ${EPL_TORCH_LIBRARY} ${EPL_TORCH_CPU_LIBRARY} ${EPL_C10_LIBRARY})
endif()
