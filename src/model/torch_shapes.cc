#include "model/torch_shapes.h"

#include "base/check.h"
#include "capture/capture.h"

namespace epl {
namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  const bool strided = tensor.defined() && tensor.layout() == c10::kStrided;
  return strided ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += bytes_of(tensor);
  return bytes;
}

NamedTensors named(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) result.emplace_back(item.key(), item.value());
  return result;
}

// What the optimizer holds after its first step. Small states count as well, so all that is made
// here is a ghost.
int64_t bytes_of_optimizer(const ShapeProgram& program, const NamedTensors& parameters,
                           const std::vector<at::Tensor>& gradients, ReadBack read_back) {
  if (program.optimizer == nullptr) return 0;
  const ShapesOnly all_ghosts({/*real_up_to=*/-1, read_back});
  std::vector<at::Tensor> updated;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].second.mutable_grad() = gradients[i];
    updated.push_back(parameters[i].second);
  }
  const int64_t before = bytes_of_ghosts();
  const auto optimizer = program.optimizer(updated);
  optimizer->step();
  return bytes_of_ghosts() - before;
}

ProgramShapes run(const ShapeProgram& program, ShapesOnly& shapes) {
  const NamedTensors parameters = named(program.net->named_parameters());
  const NamedTensors buffers = named(program.net->named_buffers());
  ProgramShapes result;
  for (const auto& [name, tensor] : parameters) result.parameters += tensor.numel();
  result.parameter_bytes = bytes_of(parameters);
  result.buffer_bytes = bytes_of(buffers);
  CaptureRequest request{program.step, program.batch, parameters, buffers};
  request.seed = 1;  // so that the gradients are kept
  Capture capture = capture_step(request);
  for (const at::Tensor& gradient : capture.effects.gradients) {
    result.gradient_bytes += bytes_of(gradient);
  }
  result.optimizer_bytes = bytes_of_optimizer(program, parameters, capture.effects.gradients,
                                              shapes.options().read_back);
  result.graph = std::move(capture.graph);
  result.assumptions = shapes.assumptions();
  return result;
}

// What LibTorch says where data_ptr<float>() or accessor() is asked of a ghost.
bool is_about_memory(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.find("data is not allocated") != std::string::npos;
}

}  // namespace

ProgramShapes shapes_of(const std::function<ShapeProgram()>& make, const ShapeOptions& options) {
  ShapesOnly shapes(options);
  try {
    return run(make(), shapes);
  } catch (const c10::Error& error) {
    if (!is_about_memory(error)) throw;
    throw Error(
        concat("C++ reads or writes the memory of a tensor of more than ", options.real_up_to,
               " bytes, by data_ptr() or accessor(): it has a shape "
               "alone"),
        "a run on shapes alone", "operators in its place, or tensors that are smaller");
  }
}

}  // namespace epl
