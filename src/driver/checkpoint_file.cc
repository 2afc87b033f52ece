#include "driver/checkpoint_file.h"

#include <fcntl.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "base/check.h"

namespace epl {
namespace {

std::string module_key(size_t index) { return "module" + std::to_string(index); }
std::string optimizer_key(size_t index) { return "optimizer" + std::to_string(index); }

std::string tensor_key(size_t index) { return "tensor" + std::to_string(index); }

// What the optimizers update and no module holds.
std::vector<at::Tensor> bare_parameters(const Model& model) {
  std::set<c10::TensorImpl*> of_modules;
  for (const auto& entry : model.modules()) {
    for (const auto& parameter : entry.module->parameters()) {
      of_modules.insert(parameter.unsafeGetTensorImpl());
    }
  }
  std::vector<at::Tensor> bare;
  for (const auto& [name, parameter] : model.parameters()) {
    if (of_modules.count(parameter.unsafeGetTensorImpl()) == 0) bare.push_back(parameter);
  }
  return bare;
}

std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

// What was written is on the disk, not only in the system's cache, before it gets its name.
bool sync_and_rename(const std::string& from, const std::string& to) {
  const int file = ::open(from.c_str(), O_RDONLY);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  return synced && std::rename(from.c_str(), to.c_str()) == 0;
}

// What a model holds, to be put back where a file turns out not to fit.
class Before {
 public:
  explicit Before(const Model& model) : model_(model) {
    for (const auto* tensors : {&model.parameters(), &model.state()}) {
      for (const auto& [name, tensor] : *tensors) {
        tensors_.push_back({name, tensor, tensor.detach()});
      }
    }
    // Loading adds to the states that are there: those of a younger training must not stay.
    for (const auto& optimizer : model.optimizers()) {
      states_.push_back(std::exchange(optimizer.get().state(), States()));
    }
  }

  // For an optimizer of the user's own that has nothing to load.
  void keep_state(size_t optimizer) {
    model_.optimizers()[optimizer].get().state() = std::move(states_[optimizer]);
  }

  void check_types() const {
    for (const auto& [name, tensor, old] : tensors_) {
      if (tensor.sizes() == old.sizes() && tensor.dtype() == old.dtype()) continue;
      throw std::runtime_error(concat("`", name, "` is ", tensor.dtype(), tensor.sizes(),
                                      " in the file and ", old.dtype(), old.sizes(),
                                      " in the model"));
    }
  }

  void restore() {
    for (auto& [name, tensor, old] : tensors_) tensor.set_data(old);
    for (size_t i = 0; i < states_.size(); ++i) keep_state(i);
  }

 private:
  using States = std::remove_reference_t<decltype(std::declval<torch::optim::Optimizer>().state())>;
  struct Entry {
    std::string name;
    at::Tensor tensor;
    at::Tensor old;
  };

  const Model& model_;
  std::vector<Entry> tensors_;
  std::vector<States> states_;
};

const char* const kRandomStep = "random_step";

int64_t load_parts(const std::string& path, const Model& model, Before& before) {
  torch::serialize::InputArchive archive;
  archive.load_from(path);
  for (size_t i = 0; i < model.modules().size(); ++i) {
    torch::serialize::InputArchive part;
    archive.read(module_key(i), part);
    model.modules()[i].module->load(part);
  }
  std::vector<at::Tensor> bare = bare_parameters(model);
  for (size_t i = 0; i < bare.size(); ++i) archive.read(tensor_key(i), bare[i]);
  for (size_t i = 0; i < model.optimizers().size(); ++i) {
    torch::serialize::InputArchive part;
    archive.read(optimizer_key(i), part);
    if (part.keys().empty()) before.keep_state(i);
    model.optimizers()[i].get().load(part);
  }
  c10::IValue random_step;
  return archive.try_read(kRandomStep, random_step) ? random_step.toInt() : 0;
}

}  // namespace

void save_checkpoint(const std::string& path, const Model& model, int64_t random_step) {
  torch::serialize::OutputArchive archive;
  for (size_t i = 0; i < model.modules().size(); ++i) {
    torch::serialize::OutputArchive part;
    model.modules()[i].module->save(part);
    archive.write(module_key(i), part);
  }
  const std::vector<at::Tensor> bare = bare_parameters(model);
  for (size_t i = 0; i < bare.size(); ++i) archive.write(tensor_key(i), bare[i]);
  for (size_t i = 0; i < model.optimizers().size(); ++i) {
    torch::serialize::OutputArchive part;
    model.optimizers()[i].get().save(part);
    archive.write(optimizer_key(i), part);
  }
  archive.write(kRandomStep, c10::IValue(random_step));
  const std::string unfinished = path + ".unfinished";
  std::string reason;
  try {
    archive.save_to(unfinished);
    if (!sync_and_rename(unfinished, path)) reason = std::strerror(errno);
  } catch (const std::exception& error) {
    reason = reason_of(error);
  }
  if (reason.empty()) return;
  std::remove(unfinished.c_str());
  throw Error(concat("cannot write ", path, ": ", reason), "epl::Trainer::save",
              "a folder that exists and has room");
}

int64_t load_checkpoint(const std::string& path, const Model& model) {
  const torch::NoGradGuard no_grad;
  Before before(model);
  try {
    const int64_t random_step = load_parts(path, model, before);
    before.check_types();
    return random_step;
  } catch (const std::exception& error) {
    before.restore();
    throw Error(concat("cannot read ", path, ": ", reason_of(error)), "epl::Trainer::load",
                "a file that epl::Trainer::save wrote");
  }
}

}  // namespace epl
