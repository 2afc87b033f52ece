#include "state/checkpoint_file.h"

#include <fcntl.h>
#include <torch/serialize/archive.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"

namespace epl {
namespace {

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

const char* const kRandomStep = "random_step";
const char* const kLossScale = "loss_scale";
const char* const kGoodSteps = "loss_scale_good_steps";

SavedProgress read_progress(torch::serialize::InputArchive& archive) {
  SavedProgress progress;
  c10::IValue written;
  if (archive.try_read(kRandomStep, written)) progress.random_step = written.toInt();
  if (archive.try_read(kLossScale, written)) progress.loss_scale = written.toDouble();
  if (archive.try_read(kGoodSteps, written)) progress.good_steps = written.toInt();
  return progress;
}

}  // namespace

void save_checkpoint(const std::string& path, const SavedProgress& progress,
                     const std::function<void(torch::serialize::OutputArchive&)>& save) {
  torch::serialize::OutputArchive archive;
  save(archive);
  archive.write(kRandomStep, c10::IValue(progress.random_step));
  if (progress.loss_scale != 0) {
    archive.write(kLossScale, c10::IValue(progress.loss_scale));
    archive.write(kGoodSteps, c10::IValue(progress.good_steps));
  }
  UnfinishedFile file(path);
  archive.save_to([&](const void* bytes, size_t size) { return file.write(bytes, size); });
  file.finish();
}

SavedProgress load_checkpoint(const std::string& path,
                              const std::function<void(torch::serialize::InputArchive&)>& load) {
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    const SavedProgress progress = read_progress(archive);
    load(archive);
    return progress;
  } catch (const std::exception& error) {
    throw Error(concat("cannot read ", path, ": ", reason_of(error)), "epl::Trainer::load",
                "a file that epl::Trainer::save wrote");
  }
}

}  // namespace epl
