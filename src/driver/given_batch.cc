#include "driver/given_batch.h"

#include <algorithm>

#include "base/check.h"

namespace epl {
namespace {

// "float[64, 3], long[64]"
std::string describe(const Batch& batch) {
  std::vector<std::string> texts;
  for (const at::Tensor& tensor : batch) {
    texts.push_back(tensor.defined() ? concat(tensor.dtype(), tensor.sizes()) : "undefined");
  }
  return join(texts, ", ");
}

std::string count_tensors(size_t count) {
  return concat(count, count == 1 ? " tensor" : " tensors");
}

// Into how many parts the rows were cut; 1 where they were not.
int64_t parts_of(const GivenBatch& given) {
  for (size_t i = 0; i < given.seen.size(); ++i) {
    const at::Tensor &whole = given.whole[i], &seen = given.seen[i];
    if (whole.dim() > 0 && seen.size(0) > 0) return whole.size(0) / seen.size(0);
  }
  return 1;
}

}  // namespace

void Batch::throw_missing(size_t index) const {
  throw Error(
      concat("there is no batch[", index, "]: the batch has ", count_tensors(size()),
             empty() ? "" : ", " + describe(*this)),
      "the step function",
      "all that the function reads in step(): trainer.step({x, y}) for batch[0] and batch[1]");
}

std::string describe(const GivenBatch& given, const Config& config, int devices) {
  if (given.whole.empty()) return "no batch";
  const std::string whole = "a batch of " + describe(given.whole);
  const int64_t parts = parts_of(given);
  if (parts == 1) return whole;
  const auto micro_batches = config.get<int64_t>("pipeline.num_micro_batch");
  return concat(whole, ", cut into ", parts, " parts (pipeline.num_micro_batch = ", micro_batches,
                ", ", devices, devices == 1 ? " device" : " devices", "): the step function reads ",
                describe(given.seen));
}

void check_has_rows(const Batch& batch) {
  const auto has_rows = [](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.dim() == 0 || tensor.size(0) > 0;
  };
  EPL_CHECK(batch.empty() || std::any_of(batch.begin(), batch.end(), has_rows),
            concat("the batch has no rows: ", describe(batch)), "epl::Trainer::step",
            "leave the step out; a loader drops an empty last batch by drop_last(true)");
}

}  // namespace epl
