#include "offload/offload.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <iostream>

#include "base/check.h"
#include "base/text.h"
#include "runtime/pages.h"

namespace epl {
namespace {

constexpr const char* kLevel = "offload.level";
constexpr const char* kPath = "offload.path";

using MemoryUsers = std::map<const c10::StorageImpl*, int>;

// How many tensors of the model show each piece of memory.
MemoryUsers users_of_storages(const Model& model) {
  MemoryUsers users;
  for (const auto& [name, tensor] : model.all_tensors()) {
    if (tensor.defined() && tensor.has_storage()) ++users[tensor.storage().unsafeGetStorageImpl()];
  }
  return users;
}

bool is_dense_on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.device().is_cpu() &&
         tensor.has_storage() && tensor.storage().nbytes() > 0 &&
         tensor.storage().data_ptr().get_context() != nullptr;
}

// Memory that the program has allocated itself it may read by pointers of its own.
bool is_of_libtorch(const c10::DataPtr& memory) {
  const c10::DeleterFnPtr deleter = memory.get_deleter();
  return HomeFile::is_home(memory) || deleter == c10::GetDefaultCPUAllocator()->raw_deleter() ||
         deleter == c10::GetCPUAllocator()->allocate(1).get_deleter();
}

// Empty where a parameter may rest elsewhere.
std::string why_it_stays(const at::Tensor& parameter, const MemoryUsers& users) {
  if (!is_dense_on_cpu(parameter)) return "it is no dense tensor in memory of LibTorch's";
  if (users.at(parameter.storage().unsafeGetStorageImpl()) > 1) {
    return "another tensor of the model lies in its memory";
  }
  if (!is_of_libtorch(parameter.storage().data_ptr())) return "its memory is the program's own";
  return "";
}

// Where the memory begins in which two tensors of a step lie, whatever storages they have: a window
// would be a copy of one of them.
std::set<const void*> shared_in(const Graph& recorded) {
  std::vector<std::pair<const char*, const char*>> ranges;
  for (const Leaf& leaf : recorded.leaves) {
    if (!leaf.tensor.defined() || !leaf.tensor.has_storage()) continue;
    const auto* const begin = static_cast<const char*>(leaf.tensor.storage().data());
    if (begin != nullptr) ranges.emplace_back(begin, begin + leaf.tensor.storage().nbytes());
  }
  std::sort(ranges.begin(), ranges.end());
  std::set<const void*> shared;
  const char* reached = nullptr;  // the end of all before
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& [begin, end] = ranges[i];
    const bool next = i + 1 < ranges.size() && ranges[i + 1].first < end;
    if (begin < reached || next) shared.insert(begin);
    reached = std::max(reached, end);
  }
  return shared;
}

// What the programs of a plan read and do not bring: the step itself writes it, or it has no
// window.
std::set<std::string> not_brought_by(const Plan& plan) {
  std::set<std::string> names;
  for (const Program& program : plan.programs) {
    for (const PlanLeaf& leaf : program.leaves) {
      const bool read = leaf.kind == PlanLeaf::Kind::kTensor && leaf.slot != kNoSlot;
      if (read && !leaf.offloaded) names.insert(leaf.name);
    }
  }
  return names;
}

int states_kept(const Model& model, const at::Tensor& parameter) {
  int kept = 0;
  for (size_t index : model.optimizers_of(parameter)) {
    const ModelOptimizer& optimizer = *model.optimizers()[index];
    if (optimizer.row() == nullptr) continue;
    const size_t group = optimizer.listed()[model.number_of(parameter, index)].group;
    kept += static_cast<int>(optimizer.row()->tensor_count(optimizer.options(group)));
  }
  return kept;
}

}  // namespace

Offload::Level Offload::level_of(const Config& config) {
  return config.get<std::string>(kLevel) == "v1" ? Level::kStates : Level::kParameters;
}

// What a file in memory, or the memory of the host, does not save.
TensorHomes& Offload::homes_of(const Config& config, Job& job) {
  const auto path = config.get<std::string>(kPath);
  if (path.empty() && job.cluster().worker_index > 0) return job.host_homes();
  if (path.empty()) {
    std::clog << "epl: " << kLevel << " = \"" << config.get<std::string>(kLevel) << "\" without "
              << kPath
              << ": what rests in the memory of the host is copied for devices of the CPU, "
              << "which have none of their own, and saves none\n";
    return job.host_homes();
  }
  FileHomes& homes = job.homes(path);
  if (homes.in_memory()) {
    std::clog << "epl: warning: " << kPath << " = \"" << path
              << "\" lies in memory (tmpfs): what rests there saves none\n";
  }
  return homes;
}

// Another thread's step may use the same parameters, and the same file.
std::unique_ptr<Offload> Offload::make(const Config& config, Job& job, Model& model) {
  if (config.get<std::string>(kLevel).empty()) return nullptr;
  const Job::StepTurn turn(job);
  std::unique_ptr<Offload> made(new Offload(level_of(config), homes_of(config, job), model));
  made->make_states_here();
  made->update_in_windows();
  made->settle();
  made->rest();
  return made;
}

void Offload::make_states_here() {
  for (size_t i = 0; i < model_.optimizers().size() && level_ == Level::kStates; ++i) {
    model_.update(i).make_states_by([homes = &homes_](const at::Tensor& parameter) {
      return homes->has(parameter) ? homes->zeros_for(parameter) : zeros_by_page(parameter);
    });
  }
}

void Offload::update_in_windows() {
  if (!homes_.has_windows()) return;
  for (size_t i = 0; i < model_.optimizers().size(); ++i) {
    model_.update(i).work_at([homes = &homes_](void* data) { return homes->to_be_written(data); });
  }
}

void Offload::settle() {
  homes_.check_written();
  // A step that failed left windows open, and the program may have put other numbers where they
  // came from since.
  if (homes_.has_windows()) homes_.rest();
  take_in_parameters();
  if (level_ != Level::kStates) return;
  take_in_states();
  reserve_states();
}

void Offload::take_in_parameters() {
  // What rests in a file does so whatever else comes to lie in its memory; a window would be a
  // copy.
  NamedTensors asked;
  staying_.clear();
  for (const NamedTensors& named : {model_.parameters(), model_.untrained()}) {
    for (const auto& each : named) {
      if (homes_.has_windows() || !homes_.has(each.second)) asked.push_back(each);
    }
  }
  if (asked.empty()) return;
  const MemoryUsers users = users_of_storages(model_);
  std::vector<at::Tensor> taken;
  for (const auto& [name, tensor] : asked) {
    std::string why = why_it_stays(tensor, users);
    if (why.empty()) why = homes_.why_not(tensor);
    if (why.empty()) {
      taken.push_back(tensor);
    } else {
      staying_.emplace(name, why);
      homes_.let_go(tensor);
    }
  }
  homes_.take_in(taken);
}

// A state that is made in a step, or was loaded between steps, belongs to its parameter from then
// on.
void Offload::take_in_states() {
  std::map<const c10::StorageImpl*, at::Tensor> outside;
  for (const auto& [name, parameter] : model_.parameters()) {
    if (!homes_.has(parameter)) continue;
    for (const at::Tensor& state : model_.states_of(parameter)) {
      if (!is_dense_on_cpu(state) || homes_.has(state) || !homes_.why_not(state).empty()) continue;
      outside.emplace(state.storage().unsafeGetStorageImpl(), state);
    }
  }
  std::vector<at::Tensor> taken;
  for (const auto& [storage, state] : outside) taken.push_back(state);
  homes_.take_in(taken);
  for (const auto& [name, parameter] : model_.parameters()) {
    homes_.set_states(parameter, model_.states_of(parameter));
  }
}

void Offload::reserve_states() {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : model_.parameters()) {
    if (!homes_.has(parameter)) continue;
    const auto there = static_cast<int>(model_.states_of(parameter).size());
    const int missing = std::max(0, states_kept(model_, parameter) - there);
    bytes += missing * HomeFile::rounded(static_cast<int64_t>(parameter.nbytes()));
  }
  homes_.reserve(bytes);
}

Offload::RestingByName Offload::resting() const {
  RestingByName found;
  for (const bool trained : {true, false}) {
    for (const auto& [name, parameter] : trained ? model_.parameters() : model_.untrained()) {
      if (homes_.has(parameter)) found[name] = {parameter, trained};
    }
  }
  return found;
}

CompileOptions::Offloaded Offload::offloaded_of(const RestingByName& resting, const Config& config,
                                                const Model& model, const Graph& recorded) {
  CompileOptions::Offloaded offloaded;
  offloaded.windows = config.get<std::string>(kPath).empty();
  const bool with_states = level_of(config) == Level::kStates;
  const std::set<const void*> shared =
      offloaded.windows ? shared_in(recorded) : std::set<const void*>();
  for (const auto& [name, each] : resting) {
    if (shared.count(each.parameter.storage().data()) != 0) {
      offloaded.staying.emplace(name, "another tensor of the step lies in its memory");
      continue;
    }
    // One that has no kernel of ours works where the parameter rests, the other in its window.
    if (offloaded.windows && each.trained && model.optimizers_of(each.parameter).size() > 1) {
      offloaded.staying.emplace(name, "several optimizers update it");
      continue;
    }
    const bool brings_states = with_states && each.trained;
    offloaded.parameters.emplace(name, brings_states ? states_kept(model, each.parameter) : 0);
  }
  for (const auto& optimizer : model.optimizers()) {
    offloaded.updates_apart &= optimizer->row() != nullptr;
  }
  return offloaded;
}

CompileOptions::Offloaded Offload::offloaded(const Config& config, const Graph& recorded) const {
  return offloaded_of(resting(), config, model_, recorded);
}

CompileOptions::Offloaded Offload::would_be_offloaded(const Config& config, const Model& model,
                                                      const Graph& recorded) {
  const MemoryUsers users = users_of_storages(model);
  RestingByName found;
  for (const bool trained : {true, false}) {
    for (const auto& [name, parameter] : trained ? model.parameters() : model.untrained()) {
      if (why_it_stays(parameter, users).empty()) found[name] = {parameter, trained};
    }
  }
  return offloaded_of(found, config, model, recorded);
}

void Offload::add_remarks(Plan& plan) const {
  for (const auto& [name, why] : staying_) {
    plan.remarks.push_back(concat("`", name, "` stays in memory: ", why));
  }
  for (const auto& optimizer : model_.optimizers()) {
    if (level_ != Level::kStates || optimizer->row() != nullptr) continue;
    plan.remarks.push_back(
        concat("what ", optimizer->name(), " keeps stays in memory: EPL does not know its rule"));
  }
}

void Offload::mark(StateMap& map, const Plan* plan) const {
  using States = StateMap::States;
  const States states = level_ == Level::kStates ? States::kGoAlong : States::kStay;
  const StateMedium medium = is_in_file() ? StateMedium::kFile : StateMedium::kHost;
  const std::set<std::string> others =
      plan == nullptr ? std::set<std::string>() : not_brought_by(*plan);
  for (const auto& [name, each] : resting()) {
    if (others.count(name) == 0) map.rest_in(medium, name, states);
  }
}

int64_t Offload::bytes_written_by(const Plan& plan) const {
  const std::set<std::string> others = not_brought_by(plan);
  int64_t bytes = 0;
  for (const auto& [name, each] : resting()) {
    if (others.count(name) == 0) continue;
    bytes += static_cast<int64_t>(each.parameter.nbytes());
    if (!each.trained) continue;
    for (const at::Tensor& state : model_.states_of(each.parameter)) {
      if (homes_.has(state)) bytes += static_cast<int64_t>(state.nbytes());
    }
  }
  return bytes;
}

}  // namespace epl
