#include "cost/cost_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "config/cluster_file.h"
#include "config/json_fields.h"
#include "layout/dtype_names.h"

namespace epl {
namespace {

constexpr double kFloatBytes = 4;

Cost cost_of_work(const NodeWork& work, double seconds, CostSource source) {
  return {seconds, work.flops, work.bytes, source};
}

// What bounds the time of an operator that is no product of matrices, and how much of it there is.
std::pair<const char*, double> family_of(const NodeWork& work) {
  if (work.flops > 0) return {"flops", work.flops};
  if (work.kind == OperatorCost::Kind::kElements) return {"elements", work.elements};
  return {"bytes", work.bytes};
}

double peak_flops(const DeviceKind& kind, c10::ScalarType dtype) {
  const std::string name = dtype_name(dtype);
  const bool named = kind.flops.count(name) > 0;
  // Half as many fit into a vector.
  const double wide = !named && c10::elementSize(dtype) == 8 ? 2 : 1;
  return kind.flops_of(name) / wide;
}

}  // namespace

CostModel::CostModel(ClusterMap map, std::map<std::string, CostTable> tables)
    : map_(std::move(map)), tables_(std::move(tables)) {}

const CostTable* CostModel::table_of(const DeviceKind& kind) const {
  const auto found = tables_.find(kind.name);
  return found == tables_.end() ? nullptr : &found->second;
}

double CostModel::memory_seconds(double bytes, const DeviceKind& kind) const {
  const double reached = efficiency_at(kind.memory_efficiency, bytes / kMega);
  return bytes / (kind.memory_gbps * kGiga * reached);
}

Cost CostModel::of_op(const OpSignature& op, const DeviceKind& kind) const {
  if (op.work.kind == OperatorCost::Kind::kFree) return cost_of_work(op.work, 0, {});
  const CostTable* table = table_of(kind);
  if (table == nullptr) return by_peaks(op, kind);
  const auto measured = table->operators.find(op.text);
  if (measured != table->operators.end()) {
    return cost_of_work(op.work, measured->second.seconds, CostSource::kMeasured);
  }
  return fitted(op, kind, *table);
}

Cost CostModel::fitted(const OpSignature& op, const DeviceKind& kind,
                       const CostTable& table) const {
  const ProductSizes& product = op.work.product;
  const auto grid = table.products.find(dtype_name(op.work.dtype));
  if (product.batch > 0 && grid != table.products.end() && !grid->second.empty()) {
    // The products of a batch are dispatched once.
    const double call = kind.call_us * kMicro;
    const double one = grid->second.seconds_of(product.m, product.n, product.k);
    const double further = std::max(0.0, one - call) * static_cast<double>(product.batch - 1);
    return cost_of_work(op.work, one + further, CostSource::kFitted);
  }
  const auto [family, size] = family_of(op.work);
  for (const std::string& name : {op.op, std::string(family)}) {
    const auto line = table.families.find(name);
    if (line == table.families.end()) continue;
    return cost_of_work(op.work, line->second.seconds_of(size), CostSource::kFitted);
  }
  return by_peaks(op, kind);
}

Cost CostModel::by_peaks(const OpSignature& op, const DeviceKind& kind) const {
  const NodeWork& work = op.work;
  double arithmetic = 0;
  if (work.flops > 0) {
    // A curve knows how products of a size do on this kind; rows know it of cores.
    const double reached = kind.product_efficiency.empty()
                               ? 1 / work.slower_by
                               : efficiency_at(kind.product_efficiency, work.flops / kGiga);
    arithmetic = work.flops / (peak_flops(kind, work.dtype) * reached);
  }
  const double slower = DeviceSpeed().flops_per_second / kind.flops_of("f32");
  const double each = work.seconds_per_element * slower * work.elements;
  const double traffic = work.bytes > 0 ? memory_seconds(work.bytes, kind) : 0;
  return cost_of_work(work, kind.call_us * kMicro + std::max({arithmetic, traffic, each}),
                      CostSource::kRoofline);
}

Cost CostModel::of_update(const UpdateKind& update, int64_t elements, int gradients,
                          const DeviceKind& kind) const {
  const auto count = static_cast<double>(elements);
  Cost cost;
  cost.bytes = kFloatBytes * count * (2 + 2 * update.states + gradients);
  if (const CostTable* table = table_of(kind)) {
    const auto line = table->updates.find(update.optimizer);
    if (line != table->updates.end()) {
      // It was measured with one gradient; each further one is read.
      const double more = kFloatBytes * count * (gradients - 1);
      cost.seconds = line->second.seconds_of(count) + memory_seconds(more, kind);
      cost.source = CostSource::kFitted;
      return cost;
    }
  }
  cost.seconds = kind.call_us * kMicro + memory_seconds(cost.bytes, kind);
  return cost;
}

Cost CostModel::of_copy(int64_t bytes, const DeviceKind& kind) const {
  Cost cost;
  cost.bytes = 2 * static_cast<double>(bytes);  // read and written
  const CostTable* table = table_of(kind);
  if (table != nullptr && !table->copies.empty()) {
    cost.seconds = static_cast<double>(bytes) / (table->copies.front().gbps * kGiga);
    cost.source = CostSource::kFitted;
    return cost;
  }
  cost.seconds = bytes > 0 ? memory_seconds(cost.bytes, kind) : 0;
  return cost;
}

Cost CostModel::of_offload(int64_t bytes, const OffloadSpace& space) const {
  const LinkKind& link = map_.description().links.at(space.link);
  Cost cost;
  cost.bytes = static_cast<double>(bytes);
  cost.seconds = seconds_of({1, 1, cost.bytes}, link);
  return cost;
}

CostModel load_cost_model(const std::string& name_or_path, const std::string& asked_by) {
  ClusterMap map = load_cluster(name_or_path, asked_by);
  std::map<std::string, CostTable> tables;
  for (const DeviceKind& kind : map.description().kinds) {
    if (kind.costs.empty()) continue;
    const std::filesystem::path folder = std::filesystem::path(name_or_path).parent_path();
    const std::string path = (folder / kind.costs).string();
    const std::string text =
        read_text_file(path, concat("kinds.", kind.name, ".costs of ", name_or_path),
                       "a file of costs beside the description, or none");
    tables[kind.name] = parse_cost_table(text, path, asked_by);
  }
  return CostModel(std::move(map), std::move(tables));
}

}  // namespace epl
