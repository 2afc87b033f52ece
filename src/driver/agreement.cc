#include "driver/agreement.h"

#include <functional>
#include <map>
#include <sstream>

#include "base/check.h"
#include "comm/protocol.h"
#include "layout/tensor_type.h"

namespace epl {
namespace {

// FNV-1a: the same on all machines, unlike std::hash.
uint64_t fingerprint(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (unsigned char letter : text) hash = (hash ^ letter) * 1099511628211ULL;
  return hash;
}

std::string first_difference(const std::string& there, const std::string& here) {
  std::istringstream theirs(there);
  std::istringstream ours(here);
  std::string their_line;
  std::string our_line;
  for (int line = 1;; ++line) {
    const bool more_there = static_cast<bool>(std::getline(theirs, their_line));
    const bool more_here = static_cast<bool>(std::getline(ours, our_line));
    if (more_there && more_here && their_line == our_line) continue;
    return concat("line ", line, " is\n    ", more_here ? our_line : "(nothing)",
                  "\n  and on worker 0\n    ", more_there ? their_line : "(nothing)");
  }
}

NamedTensors tensors_of(const Model& model) {
  NamedTensors all = model.parameters();
  all.insert(all.end(), model.state().begin(), model.state().end());
  return all;
}

}  // namespace

void check_same_on_all_workers(Job& job, const std::string& what, const std::string& text) {
  Membership* membership = job.membership();
  if (membership == nullptr) return;
  const auto hashes = membership->exchange(job.next_key(what), std::to_string(fingerprint(text)));
  for (size_t worker = 1; worker < hashes.size(); ++worker) {
    if (hashes[worker] == hashes[0]) continue;
    const auto texts = membership->exchange(job.next_key(what + ", in full"), text);
    const std::string name =
        name_of_worker(static_cast<int>(worker), membership->workers()[worker]);
    throw JobFailed(concat(name, " differs from worker 0 in ", what, ": its ",
                           first_difference(texts[0], texts[worker])),
                    "epl::Trainer::step",
                    "the same program, configuration and batch size on every worker");
  }
}

std::string describe_model(const Model& model) {
  std::ostringstream out;
  for (const auto& [name, tensor] : tensors_of(model)) {
    out << name << ": " << tensor.scalar_type() << tensor.sizes() << "\n";
  }
  return out.str();
}

std::string describe_batch(const Batch& batch) {
  std::ostringstream out;
  for (size_t i = 0; i < batch.size(); ++i) {
    out << "tensor " << i << ": " << batch[i].scalar_type() << batch[i].sizes() << "\n";
  }
  return out.str();
}

void broadcast_model(Job& job, const Model& model) {
  if (job.workers() == nullptr) return;
  const c10::AutoGradMode no_grad(false);
  std::map<at::ScalarType, std::vector<std::pair<at::Tensor, at::Tensor>>> by_type;
  for (const auto& [name, tensor] : tensors_of(model)) {
    if (tensor.layout() != c10::kStrided || tensor.numel() == 0) continue;
    by_type[tensor.scalar_type()].emplace_back(tensor.detach(), tensor.detach().contiguous());
  }
  for (const auto& [type, pairs] : by_type) {
    std::vector<at::Tensor> travelling;
    for (const auto& [own, copy] : pairs) travelling.push_back(copy);
    job.workers()->broadcast(travelling, 0);
    for (const auto& [own, copy] : pairs) {
      if (copy.data_ptr() != own.data_ptr()) own.copy_(copy);
    }
  }
}

}  // namespace epl
