#include "compile/loss_of_parts.h"

#include <epl/collection.h>

#include "base/text.h"
#include "passes/purify.h"

namespace epl {

RowResult loss_of_recorded(const Graph& recorded, int parts) {
  Graph pure = recorded;
  PassList passes;
  passes.push_back(std::make_unique<Purify>());
  run_passes(pure, passes);
  return loss_over_rows(pure, parts);
}

RowResult loss_of_any_recorded(const Graph& recorded, int parts) {
  try {
    return loss_of_recorded(recorded, parts);
  } catch (const std::exception&) {
    return {OverRows::kNeither, "its graph cannot be read"};
  }
}

std::string remark_on_loss(const RowResult& loss, int parts, bool averages) {
  if (parts < 2 || loss.kind == OverRows::kMean) return "";
  if (loss.kind == OverRows::kSum) {
    if (!averages) return "";
    return concat(
        "the loss of the step is a sum over the rows of its batch, but its ", parts,
        " parts (micro batches x replicas) are averaged: loss and gradients are 1/", parts,
        " of those of the plain loop on all rows. Divide the loss by the number of rows in the "
        "step, or set communication.gradients_reduce_method = \"sum\"");
  }
  return concat("the loss of the step is not known to be a mean over the rows of its batch (",
                loss.why, "): the ", averages ? "mean" : "sum", " of its ", parts,
                " parts (micro batches x replicas) is what is trained on, which may differ from "
                "the loss of all rows at once. Rows are dimension 0 of the batch's tensors");
}

std::string remark_on_metrics(const Graph& pure, int parts) {
  std::vector<std::string> names;
  for (const Metric* metric : metrics_of_rows(pure)) {
    const std::string& collection = metric->collection;
    const bool averaged =
        collection == collections::kGlobalMean || collection == collections::kLocalMean;
    if (averaged) names.push_back(metric->name);
  }
  if (names.empty()) return "";
  return concat("the metric `", names[0],
                "` has a row for each of the batch: the first rows of its ", parts,
                " parts (micro batches x replicas) are averaged, then the second ones, and so on. "
                "epl::add_to_collection(epl::collections::kGlobalConcat, ...) puts them one behind "
                "the other");
}

}  // namespace epl
