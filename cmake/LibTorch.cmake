# Debian's LibTorch (libtorch-dev) as the target `epl_libtorch`. Its own TorchConfig.cmake asks for
# the build tools of all of Caffe2, so the three libraries are named here directly.
find_path(EPL_TORCH_API_INCLUDE torch/torch.h
  PATH_SUFFIXES torch/csrc/api/include include/torch/csrc/api/include REQUIRED)
find_library(EPL_TORCH_LIBRARY torch REQUIRED)
find_library(EPL_TORCH_CPU_LIBRARY torch_cpu REQUIRED)
find_library(EPL_C10_LIBRARY c10 REQUIRED)
add_library(epl_libtorch INTERFACE)
add_library(epl::libtorch ALIAS epl_libtorch)
set_target_properties(epl_libtorch PROPERTIES EXPORT_NAME libtorch)
target_include_directories(epl_libtorch SYSTEM INTERFACE ${EPL_TORCH_API_INCLUDE})
target_link_libraries(epl_libtorch INTERFACE ${EPL_TORCH_LIBRARY} ${EPL_TORCH_CPU_LIBRARY} ${EPL_C10_LIBRARY})
