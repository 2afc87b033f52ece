#include "driver/merge.h"

#include <epl/collection.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "driver/metrics.h"

namespace epl {
namespace {

bool is_local(const std::string& collection) {
  return collection == collections::kLocalMean || collection == collections::kLocalSum ||
         collection == collections::kLocalConcat;
}

// The tensors of all workers, in the order of workers. They may differ in shape and number.
std::vector<at::Tensor> gather(const std::vector<at::Tensor>& mine, Communicator& workers) {
  const std::vector<char> bytes = torch::jit::pickle_save(c10::IValue(mine));
  const auto size = static_cast<int64_t>(bytes.size());
  const at::Tensor counts = at::empty({workers.size()}, at::kLong);
  workers.all_gather(at::full({1}, size, at::kLong), counts,
                     std::vector<int64_t>(static_cast<size_t>(workers.size()), 1));
  const std::vector<int64_t> rows(counts.data_ptr<int64_t>(),
                                  counts.data_ptr<int64_t>() + counts.numel());
  const at::Tensor all = at::empty({counts.sum().item<int64_t>()}, at::kByte);
  const at::Tensor part =
      at::from_blob(const_cast<char*>(bytes.data()), {size}, at::TensorOptions(at::kByte));
  workers.all_gather(part, all, rows);
  std::vector<at::Tensor> result;
  const char* next = static_cast<const char*>(all.data_ptr());
  for (int64_t count : rows) {
    const auto value = torch::jit::pickle_load(std::vector<char>(next, next + count));
    for (const at::Tensor& tensor : value.toTensorVector()) result.push_back(tensor);
    next += count;
  }
  return result;
}

}  // namespace

double mean_loss(const std::vector<DeviceRun>& runs) {
  size_t count = 0;
  for (const auto& run : runs) count += run.losses.size();
  double mean = 0;  // as the plain loop adds up shares
  for (const auto& run : runs) {
    for (double loss : run.losses) mean += loss / static_cast<double>(count);
  }
  return mean;
}

std::map<std::string, at::Tensor> merge_metrics(const std::vector<DeviceRun>& runs,
                                                Communicator* workers) {
  std::map<std::string, at::Tensor> merged;
  for (const auto& [name, metric] : runs[0].metrics) {
    std::vector<at::Tensor> parts = metric.parts;
    if (!is_local(metric.collection)) {
      for (size_t device = 1; device < runs.size(); ++device) {
        const auto& more = runs[device].metrics.at(name).parts;
        parts.insert(parts.end(), more.begin(), more.end());
      }
      if (workers != nullptr) parts = gather(parts, *workers);
    }
    merged[name] = merge_metric(metric.collection, parts);
  }
  return merged;
}

}  // namespace epl
