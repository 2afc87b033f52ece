#include "model/saved_states.h"

#include <torch/serialize/archive.h>

#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "model/torch_optimizer.h"

namespace epl {
namespace {

// The states under these keys, taken out of the others.
OptimizerStates take_states(OptimizerStates& states, const std::set<StateKey>& keys) {
  OptimizerStates taken;
  for (const auto& key : keys) {
    auto found = states.find(key);
    if (found == states.end()) continue;
    taken[key] = std::move(found->second);
    states.erase(found);
  }
  return taken;
}

void give_states(OptimizerStates& states, OptimizerStates given) {
  for (auto& [key, state] : given) states[key] = std::move(state);
}

}  // namespace

// The others keep their places in the optimizer's table, so that a file has them in the same order.
std::string saved_states(torch::optim::Optimizer& optimizer, const std::set<StateKey>& keys) {
  OptimizerStates all = std::exchange(optimizer.state(), OptimizerStates());
  for (const auto& key : keys) {
    const auto found = all.find(key);
    if (found != all.end()) optimizer.state()[key] = std::move(found->second);
  }
  std::ostringstream out;
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  archive.save_to(out);
  give_states(all, std::move(optimizer.state()));
  optimizer.state() = std::move(all);
  return out.str();
}

// The options that come along are this worker's own as well, but not to be relied on.
void add_saved_states(torch::optim::Optimizer& optimizer, const std::string& text,
                      const std::set<StateKey>& keys) {
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  for (const auto& group : optimizer.param_groups()) options.push_back(group.options().clone());
  OptimizerStates own = std::exchange(optimizer.state(), OptimizerStates());
  std::istringstream in(text);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  if (!archive.keys().empty()) optimizer.load(archive);
  OptimizerStates loaded = take_states(optimizer.state(), keys);
  optimizer.state() = std::move(own);
  give_states(optimizer.state(), std::move(loaded));
  for (size_t i = 0; i < options.size(); ++i) {
    optimizer.param_groups()[i].set_options(std::move(options[i]));
  }
}

}  // namespace epl
