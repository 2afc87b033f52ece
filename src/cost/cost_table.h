// CostTable: what was measured of one kind of device, and what was fitted to it. JSON, so that it
// lies beside the description of a cluster and grows from run to run.
//
//   {"version": 1, "machine": {"processor": "...", "threads": "1"},
//    "operators": {"aten::mm f32[64,256] f32[256,1024] -> f32[64,1024]": {"seconds": 4e-4, "count":
//    7}}, "products": {"f32": {"m": [1, 64], "n": [1, 64], "k": [1, 64], "seconds": [...]}},
//    "families": {"bytes": {"first": 1.6e-6, "each": 5e-11, "points": 12, "error": 0.08}},
//    "collectives": {"threads": {"all_reduce": {"2": [[1024, 9e-6], [1048576, 2e-4]]}}},
//    "updates": {"adam": {"first": ..., "each": ...}},
//    "copies": [[1, 12.1], [2, 12.4]]}
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost/collective_cost.h"
#include "cost/fits.h"

namespace epl {

struct MeasuredTime {
  double seconds = 0;
  int64_t count = 1;  // of measurements that it is the mean of
};

// Copying of all threads together: by their number, in 10^9 bytes a second.
struct CopySpeed {
  int64_t threads = 1;
  double gbps = 0;
};

struct CostTable {
  // What times depend on besides the work: processor, cores, threads, libraries.
  std::map<std::string, std::string> machine;
  std::map<std::string, MeasuredTime> operators;  // by OpSignature::text
  std::map<std::string, ProductGrid> products;    // by element type
  // By the name of an operator, else by what bounds it: "bytes", "flops".
  std::map<std::string, LineFit> families;
  // By link, collective and members: rising curves over bytes.
  std::map<std::string, std::map<std::string, std::map<int64_t, std::vector<TimePoint>>>>
      collectives;
  std::map<std::string, LineFit> updates;  // by optimizer, over elements
  std::vector<CopySpeed> copies;

  // Times of one operator in both become their mean by count; of fits, grids and curves those of
  // `other` stand, which is the newer one. Throws epl::Error where the machines differ.
  void merge(const CostTable& other, const std::string& asked_by);
};

std::string print_cost_table(const CostTable& table);
CostTable parse_cost_table(const std::string& text, const std::string& name,
                           const std::string& asked_by);

}  // namespace epl
