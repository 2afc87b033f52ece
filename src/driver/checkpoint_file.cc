#include "driver/checkpoint_file.h"

#include <fcntl.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace epl {
namespace {

std::string module_key(size_t index) { return "module" + std::to_string(index); }
std::string optimizer_key(size_t index) { return "optimizer" + std::to_string(index); }

// What was written is on the disk, not only in the system's cache.
void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  const int reason = errno;
  if (file >= 0) ::close(file);
  EPL_CHECK(synced, concat("cannot write ", path, ": ", std::strerror(reason)),
            "epl::Trainer::save");
}

}  // namespace

void save_checkpoint(const std::string& path, const Model& model) {
  torch::serialize::OutputArchive archive;
  for (size_t i = 0; i < model.modules().size(); ++i) {
    torch::serialize::OutputArchive part;
    model.modules()[i].module->save(part);
    archive.write(module_key(i), part);
  }
  for (size_t i = 0; i < model.optimizers().size(); ++i) {
    torch::serialize::OutputArchive part;
    model.optimizers()[i].get().save(part);
    archive.write(optimizer_key(i), part);
  }
  const std::string unfinished = path + ".unfinished";
  try {
    archive.save_to(unfinished);
  } catch (const c10::Error& error) {
    std::remove(unfinished.c_str());
    throw Error(concat("cannot write ", path, ": ", error.what_without_backtrace()),
                "epl::Trainer::save", "a folder that exists and has room");
  }
  sync_file(unfinished);
  EPL_CHECK(std::rename(unfinished.c_str(), path.c_str()) == 0,
            concat("cannot write ", path, ": ", std::strerror(errno)), "epl::Trainer::save");
}

void load_checkpoint(const std::string& path, const Model& model) {
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(path);
  } catch (const c10::Error& error) {
    throw Error(concat("cannot read ", path, ": ", error.what_without_backtrace()),
                "epl::Trainer::load", "a file that epl::Trainer::save wrote");
  }
  for (size_t i = 0; i < model.modules().size(); ++i) {
    torch::serialize::InputArchive part;
    archive.read(module_key(i), part);
    model.modules()[i].module->load(part);
  }
  for (size_t i = 0; i < model.optimizers().size(); ++i) {
    torch::serialize::InputArchive part;
    archive.read(optimizer_key(i), part);
    model.optimizers()[i].get().load(part);
  }
}

}  // namespace epl
