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

}  // namespace

void add_to_collection(const std::string& collection, const at::Tensor& tensor,
                       const std::string& name) {
  EPL_CHECK(std::find(std::begin(kCollections), std::end(kCollections), collection) !=
                std::end(kCollections),
            concat("there is no collection \"", collection, "\""), asked_by(collection, name),
            "one of " + join(kCollections, ", "));
  EPL_CHECK(tensor.defined(), "an undefined tensor cannot be added to a collection",
            asked_by(collection, name), "a tensor that the step has computed");
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
