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
#include "state/optimizer_states.h"

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

// A file under a temporary name, until it is whole and on the disk.
//
// LibTorch's own writer ends the process where a disk is full: it throws, and then writes the rest
// in its destructor, which throws again. So it is never told: write() takes everything, keeps the
// first error, and finish() tells it.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::string path)
      : path_(std::move(path)),
        unfinished_(path_ + ".unfinished"),
        file_(::open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
        error_(file_ < 0 ? errno : 0) {}
  ~UnfinishedFile() {
    if (file_ < 0) return;
    ::close(file_);
    std::remove(unfinished_.c_str());  // no longer there where it was renamed
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  size_t write(const void* bytes, size_t size) {
    const auto* from = static_cast<const char*>(bytes);
    for (size_t left = size; left > 0 && error_ == 0;) {
      const ssize_t written = ::write(file_, from, left);
      if (written < 0 && errno == EINTR) continue;
      note(written >= 0);
      if (error_ != 0) break;
      from += written;
      left -= static_cast<size_t>(written);
    }
    return size;
  }

  // Gives the file its name. Throws Error with the system's words.
  void finish() {
    if (error_ == 0) note(::fsync(file_) == 0);
    if (error_ == 0) note(std::rename(unfinished_.c_str(), path_.c_str()) == 0);
    if (error_ == 0) return;
    throw Error(concat("cannot write ", path_, ": ", std::strerror(error_)), "epl::Trainer::save",
                "a folder that exists, may be written and has room");
  }

 private:
  void note(bool good) {
    if (!good) error_ = errno;
  }

  const std::string path_;
  const std::string unfinished_;
  const int file_;
  int error_;  // the first; 0 where there was none
};

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
      states_.push_back(std::exchange(optimizer.get().state(), OptimizerStates()));
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
  struct Entry {
    std::string name;
    at::Tensor tensor;
    at::Tensor old;
  };

  const Model& model_;
  std::vector<Entry> tensors_;
  std::vector<OptimizerStates> states_;
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
  UnfinishedFile file(path);
  archive.save_to([&](const void* bytes, size_t size) { return file.write(bytes, size); });
  file.finish();
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
