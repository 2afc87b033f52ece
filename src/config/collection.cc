#include <epl/collection.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "config/collected.h"
#include "config/collection_state.h"
#include "config/scopes.h"

namespace epl {
namespace {

constexpr const char* kCollections[] = {collections::kGlobalMean,   collections::kGlobalSum,
                                        collections::kGlobalConcat, collections::kLocalMean,
                                        collections::kLocalSum,     collections::kLocalConcat,
                                        collections::kCheckpoints};

std::vector<CollectionEntry>& entries() {
  thread_local std::vector<CollectionEntry> entries;
  return entries;
}

std::string asked_by(const std::string& collection, const std::string& name) {
  if (name.empty()) return concat("epl::add_to_collection(\"", collection, "\", tensor)");
  return concat("epl::add_to_collection(\"", collection, "\", tensor, \"", name, "\")");
}

void check_is_new(const std::string& metric, const std::string& asked_by) {
  for (const CollectionEntry& other : entries()) {
    EPL_CHECK(other.collection == collections::kCheckpoints || other.name != metric,
              concat("two metrics of one step have the name \"", metric, "\""),
              concat(asked_by, ", after one in ", other.collection), "a name of its own for each");
  }
}

bool is_one_of(const std::string& collection, const char* global, const char* local) {
  return collection == global || collection == local;
}

// A count that is averaged and read as a whole number again would be cut off without a word.
void check_type(const std::string& collection, const at::Tensor& tensor,
                const std::string& asked_by) {
  const bool averages = is_one_of(collection, collections::kGlobalMean, collections::kLocalMean);
  const bool sums = is_one_of(collection, collections::kGlobalSum, collections::kLocalSum);
  const at::ScalarType type = tensor.scalar_type();
  EPL_CHECK(!averages || !c10::isIntegralType(type, /*includeBool=*/true),
            concat("the mean of tensors of type ", type, " is not of that type"), asked_by,
            "tensor.to(torch::kFloat), or the collection for sums");
  EPL_CHECK(!sums || type != at::kBool, "truth values have no sum", asked_by,
            "tensor.to(torch::kLong) to count them");
}

}  // namespace

const char* collection_of_returned(const at::Tensor& metric) {
  const bool counts = c10::isIntegralType(metric.scalar_type(), /*includeBool=*/false);
  return counts ? collections::kGlobalSum : collections::kGlobalMean;
}

void add_to_collection(const std::string& collection, const at::Tensor& tensor,
                       const std::string& name) {
  EPL_CHECK(std::find(std::begin(kCollections), std::end(kCollections), collection) !=
                std::end(kCollections),
            concat("there is no collection \"", collection, "\""), asked_by(collection, name),
            "one of " + join(kCollections, ", "));
  EPL_CHECK(tensor.defined(), "an undefined tensor cannot be added to a collection",
            asked_by(collection, name), "a tensor that the step has computed");
  check_type(collection, tensor, asked_by(collection, name));
  if (!is_recording_taskgraphs()) return;
  std::string full_name = name;
  if (collection != collections::kCheckpoints) {
    if (name.empty()) {
      const auto position = std::count_if(
          entries().begin(), entries().end(),
          [&](const CollectionEntry& entry) { return entry.collection == collection; });
      full_name = concat(collection, "_", position);
    }
    check_is_new(full_name, asked_by(collection, name));
  }
  entries().push_back({collection, full_name, tensor});
}

std::vector<CollectionEntry> take_collections() { return std::exchange(entries(), {}); }

void clear_collections() { entries().clear(); }

}  // namespace epl
