#include "tests/parity/parity.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "config/libtorch.h"
#include "runtime/random_streams.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/rounding.h"

namespace epl::parity {
namespace {

constexpr uint64_t kSeed = 7;

std::vector<NamedModule> modules_of(const Program& program) {
  std::vector<NamedModule> modules;
  for (const Turn& turn : program.turns) {
    for (const NamedModule& named : turn.modules) {
      const bool known = std::any_of(modules.begin(), modules.end(), [&](const NamedModule& other) {
        return other.module == named.module;
      });
      if (!known) modules.push_back(named);
    }
  }
  return modules;
}

std::vector<OptimizerPointer> optimizers_of(const Program& program) {
  std::vector<OptimizerPointer> optimizers;
  for (const Turn& turn : program.turns) {
    for (const OptimizerPointer& optimizer : turn.optimizers) {
      if (std::find(optimizers.begin(), optimizers.end(), optimizer) == optimizers.end()) {
        optimizers.push_back(optimizer);
      }
    }
  }
  return optimizers;
}

torch::Tensor copy(const torch::Tensor& tensor) { return tensor.detach().clone(); }

// What torch::save would write of one parameter's state: its members by name.
std::vector<std::pair<std::string, torch::Tensor>> members_of(
    const torch::optim::OptimizerParamState& state) {
  torch::serialize::OutputArchive written;
  state.serialize(written);
  std::stringstream stream;
  written.save_to(stream);
  torch::serialize::InputArchive read;
  read.load_from(stream);
  std::vector<std::pair<std::string, torch::Tensor>> members;
  for (const std::string& key : read.keys()) {
    c10::IValue value;
    read.read(key, value);
    if (value.isTensor()) {
      members.emplace_back(key, copy(value.toTensor()));
    } else if (value.isInt()) {
      members.emplace_back(key, torch::tensor(value.toInt()));
    }
  }
  return members;
}

void append_tensors(const std::vector<NamedModule>& modules,
                    const std::vector<OptimizerPointer>& optimizers, Snapshot& snapshot) {
  std::map<const void*, std::string> names;
  auto append = [&](const NamedModule& named, const std::string& name,
                    const torch::Tensor& tensor) {
    const std::string path = named.name.empty() ? name : named.name + "." + name;
    names.emplace(tensor.unsafeGetTensorImpl(), path);
    snapshot.tensors.emplace_back(path, copy(tensor));
  };
  for (const NamedModule& named : modules) {
    for (const auto& item : named.module->named_parameters()) {
      append(named, item.key(), item.value());
    }
    for (const auto& item : named.module->named_buffers()) append(named, item.key(), item.value());
  }
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const std::string owner = "optimizer " + std::to_string(i);
    size_t states = 0;
    for (const auto& group : optimizers[i]->param_groups()) {
      for (const torch::Tensor& parameter : group.params()) {
        const auto& all = optimizers[i]->state();
        auto found = all.find(epl::state_key(parameter));
        if (found == all.end()) continue;
        ++states;
        for (const auto& [key, tensor] : members_of(*found->second)) {
          snapshot.tensors.emplace_back(
              owner + ", " + key + " of " + names[parameter.unsafeGetTensorImpl()], tensor);
        }
      }
    }
    // States under keys that belong to no parameter would be written by torch::save as well.
    snapshot.tensors.emplace_back(
        owner + ", states of strangers",
        torch::tensor(static_cast<int64_t>(optimizers[i]->state().size() - states)));
  }
}

std::vector<Batch> cut(const Batch& batch, int parts) {
  std::vector<Batch> micro_batches(parts);
  for (const torch::Tensor& tensor : batch) {
    const int64_t rows = tensor.size(0) / parts;
    for (int i = 0; i < parts; ++i) {
      micro_batches[i].push_back(tensor.slice(0, i * rows, (i + 1) * rows));
    }
  }
  return micro_batches;
}

struct TurnResult {
  double loss = 0;
  double gradient_norm = 0;
  std::map<std::string, torch::Tensor> metrics;
};

// Each once, also where several optimizers have it.
std::vector<torch::Tensor> parameters_of(const Turn& turn) {
  std::vector<torch::Tensor> parameters;
  std::set<const void*> seen;
  for (const OptimizerPointer& optimizer : turn.optimizers) {
    for (const auto& group : optimizer->param_groups()) {
      for (const torch::Tensor& parameter : group.params()) {
        if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
      }
    }
  }
  return parameters;
}

double clip(const std::vector<torch::Tensor>& parameters, const TrainerOptions& options) {
  double norm = 0;
  if (options.clip_grad_norm > 0) {
    norm = torch::nn::utils::clip_grad_norm_(parameters, options.clip_grad_norm,
                                             options.clip_norm_type);
  }
  if (options.clip_grad_value > 0) {
    torch::nn::utils::clip_grad_value_(parameters, options.clip_grad_value);
  }
  return norm;
}

void run_micro_batches(const Turn& turn, const std::vector<Batch>& micro_batches, int count,
                       bool sums, TurnResult& result) {
  for (const Batch& micro_batch : micro_batches) {
    StepOutput output = turn.step(micro_batch);
    (count == 1 || sums ? output.loss : output.loss / count).backward();
    result.loss += output.loss.item<double>() / count;
    for (const auto& [name, value] : output.metrics) {
      torch::Tensor& merged = result.metrics[name];
      merged = merged.defined() ? merged + value.detach() : copy(value);
    }
  }
}

void finish_metrics(int count, TurnResult& result) {
  for (auto& [name, value] : result.metrics) {
    if (count > 1 && value.is_floating_point()) value = value / count;  // counts are summed
  }
}

// The loop that every LibTorch program has, with gradient accumulation and clipping as users add
// it.
TurnResult step_plain(const Turn& turn, const Batch& batch, const Variant& variant) {
  TurnResult result;
  for (const OptimizerPointer& optimizer : turn.optimizers) optimizer->zero_grad();
  const int count = variant.micro_batches();
  run_micro_batches(turn, count == 1 ? std::vector<Batch>{batch} : cut(batch, count), count,
                    variant.sums(), result);
  finish_metrics(count, result);
  result.gradient_norm = clip(parameters_of(turn), variant.options());
  for (const OptimizerPointer& optimizer : turn.optimizers) optimizer->step();
  return result;
}

// What N devices do, one after the other: each starts from the same buffers and draws from its own
// stream, has its own gradients, which may be clipped, and its part of the sum. Floating-point
// buffers become the mean of all.
class PlainDevices {
 public:
  PlainDevices(const Variant& variant, const std::vector<NamedModule>& modules)
      : variant_(variant) {
    const int apart = variant.all_devices() / variant.row_devices();
    for (int i = 0; i < variant.row_devices(); ++i) streams_.emplace_back(i * apart);
    for (const NamedModule& named : modules) {
      for (const torch::Tensor& buffer : named.module->buffers()) buffers_.push_back(buffer);
    }
  }

  TurnResult step(const Turn& turn, const Batch& batch) {
    const int devices = variant_.row_devices();
    const int count = devices * variant_.micro_batches();
    for (const OptimizerPointer& optimizer : turn.optimizers) optimizer->zero_grad();
    begin(parameters_of(turn));
    for (RandomStreams& streams : streams_) streams.begin_step(steps_[&turn]);
    ++steps_[&turn];
    TurnResult result;
    const std::vector<Batch> parts = cut(batch, count);
    for (int device = 0; device < devices; ++device) {
      std::vector<Batch> own;
      for (int i = 0; i < variant_.micro_batches(); ++i) {
        own.push_back(parts[part_of(device, i)]);
      }
      run_device(device, [&] { run_micro_batches(turn, own, count, variant_.sums(), result); });
      take_gradients();
    }
    finish_metrics(count, result);
    for (size_t i = 1; i < streams_.size(); ++i) skip_in_program(streams_[i].take_drawn());
    end();
    if (!variant_.clips_locally()) {
      result.gradient_norm = clip(parameters_, variant_.options());
    } else if (variant_.options().clip_grad_norm > 0) {  // the norm of what was clipped and reduced
      result.gradient_norm =
          torch::nn::utils::clip_grad_norm_(parameters_, 1e30, variant_.options().clip_norm_type);
    }
    for (const OptimizerPointer& optimizer : turn.optimizers) optimizer->step();
    return result;
  }

 private:
  // Rows lie in the order: replica, micro batch, slice.
  size_t part_of(int device, int micro_batch) const {
    const int slices = variant_.slice_count();
    const int replica = device / slices;
    return static_cast<size_t>((replica * variant_.micro_batches() + micro_batch) * slices +
                               device % slices);
  }

  void begin(std::vector<torch::Tensor> parameters) {
    torch::NoGradGuard no_grad;
    parameters_ = std::move(parameters);
    sums_.clear();
    for (torch::Tensor& parameter : parameters_) {
      sums_.push_back(std::exchange(parameter.mutable_grad(), torch::Tensor()));
    }
    before_.clear();
    after_.clear();
    for (const torch::Tensor& buffer : buffers_) before_.push_back(copy(buffer));
  }

  void run_device(int device, const std::function<void()>& run) {
    at::Generator program = at::detail::getDefaultCPUGenerator();
    at::Generator own = streams_[static_cast<size_t>(device)].default_generator();
    const torch::Tensor state = program.get_state();
    if (device > 0) {
      torch::NoGradGuard no_grad;
      for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(before_[i]);
      program.set_state(own.get_state());
    }
    run();
    if (device > 0) {
      own.set_state(program.get_state());
      program.set_state(state);
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (after_.size() <= i) {
        after_.push_back(copy(buffers_[i]));
      } else if (buffers_[i].is_floating_point()) {
        after_[i] += buffers_[i];
      }
    }
  }

  // Adds the device's gradients to the sum. A device's own gradient is what it hands in times the
  // number of devices.
  void take_gradients() {
    torch::NoGradGuard no_grad;
    const double scale = variant_.sums() ? 1 : variant_.row_devices();
    if (variant_.clips_locally()) {
      for (torch::Tensor& parameter : parameters_) {
        if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad() * scale;
      }
      clip(parameters_, variant_.options());
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      torch::Tensor own = std::exchange(parameters_[i].mutable_grad(), torch::Tensor());
      if (!own.defined()) continue;
      if (variant_.clips_locally()) own = own / scale;
      sums_[i] = sums_[i].defined() ? sums_[i] + own : own;
    }
  }

  void end() {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = sums_[i];
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const bool mean = buffers_[i].is_floating_point();
      buffers_[i].copy_(mean ? after_[i] / variant_.row_devices() : after_[i]);
    }
  }

  const Variant& variant_;
  std::vector<RandomStreams> streams_;
  std::map<const Turn*, int64_t> steps_;  // a trainer each, which counts for itself
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> sums_;
  std::vector<torch::Tensor> before_;
  std::vector<torch::Tensor> after_;
};

using StepTurn = std::function<TurnResult(size_t turn, const Batch& batch)>;

Trace train(const MakeProgram& make, const MakeBatch& make_batch, const Variant& variant,
            const std::function<StepTurn(const Program&)>& begin) {
  at::set_num_threads(1);
  std::vector<Batch> batches;
  for (int i = 0; !variant.draws_in_loop() && i < variant.steps(); ++i) {
    torch::manual_seed(1000 + i);
    batches.push_back(make_batch(i));
  }
  torch::manual_seed(kSeed);
  Program program = make();
  const std::vector<NamedModule> modules = modules_of(program);
  const std::vector<OptimizerPointer> optimizers = optimizers_of(program);
  StepTurn step = begin(program);
  Trace trace;
  for (int i = 0; i < variant.steps(); ++i) {
    if (program.before_step) program.before_step(i);
    const Batch batch = variant.draws_in_loop() ? make_batch(i) : batches[i];
    Snapshot snapshot;
    for (size_t turn = 0; turn < program.turns.size(); ++turn) {
      TurnResult result = step(turn, batch);
      snapshot.losses.push_back(result.loss);
      snapshot.gradient_norms.push_back(result.gradient_norm);
      for (const auto& [name, value] : result.metrics) {
        snapshot.tensors.emplace_back("metric " + name, copy(value));
      }
    }
    if (variant.looks_after(i)) {
      append_tensors(modules, variant.with_states() ? optimizers : std::vector<OptimizerPointer>(),
                     snapshot);
    }
    trace.push_back(std::move(snapshot));
  }
  return trace;
}

// How two tensors differ, worst element first.
struct Difference {
  double relative = 0;  // infinity where nothing is comparable
  std::string text;
};

std::string exact(double value) {
  std::ostringstream text;
  text.precision(9);
  text << value;
  return text.str();
}

Difference difference(const torch::Tensor& plain, const torch::Tensor& epl) {
  if (!plain.sizes().equals(epl.sizes()) || plain.scalar_type() != epl.scalar_type()) {
    std::ostringstream text;
    text << "plain " << plain.scalar_type() << plain.sizes() << ", EPL " << epl.scalar_type()
         << epl.sizes();
    return {INFINITY, text.str()};
  }
  if (plain.numel() == 0 || torch::equal(plain, epl)) return {};
  const auto a = plain.to(torch::kDouble).reshape({-1});
  const auto b = epl.to(torch::kDouble).reshape({-1});
  const auto distance = (a - b).abs();
  // NaN is the worst of all: argmax finds it, and it compares as too far.
  const int64_t worst = distance.argmax().item<int64_t>();
  const double largest = a.abs().max().item<double>();
  const double apart = distance[worst].item<double>();
  Difference result;
  result.relative =
      plain.is_floating_point() && largest > 0 && std::isfinite(apart) ? apart / largest : INFINITY;
  std::ostringstream text;
  text << "at [";
  std::vector<int64_t> index;
  for (int64_t dim = plain.dim() - 1, rest = worst; dim >= 0; --dim) {
    index.insert(index.begin(), rest % plain.size(dim));
    rest /= plain.size(dim);
  }
  for (size_t i = 0; i < index.size(); ++i) text << (i ? ", " : "") << index[i];
  text << "]: plain " << exact(a[worst].item<double>()) << ", EPL "
       << exact(b[worst].item<double>()) << " (relative " << result.relative << ")";
  result.text = text.str();
  return result;
}

bool too_far(double relative, const Exactness& exactness) {
  return !(relative <= exactness.relative);
}

std::string allowed(const Exactness& exactness) {
  return exactness.relative == 0 ? "bits must be equal"
                                 : "allowed " + exact(exactness.relative) + ": " + exactness.reason;
}

using Tensors = std::vector<std::pair<std::string, torch::Tensor>>;

testing::AssertionResult compare_tensors(const Tensors& plain, const Tensors& epl,
                                         const Exactness& exactness) {
  std::map<std::string, torch::Tensor> others(epl.begin(), epl.end());
  Difference worst;
  std::string worst_name;
  size_t differing = 0;
  for (const auto& [name, tensor] : plain) {
    auto other = others.find(name);
    if (other == others.end()) return testing::AssertionFailure() << "EPL has no " << name;
    Difference found = difference(tensor, other->second);
    others.erase(other);
    if (!too_far(found.relative, exactness)) continue;
    ++differing;
    if (worst_name.empty() || found.relative > worst.relative) {
      worst = found;
      worst_name = name;
    }
  }
  if (!others.empty()) {
    return testing::AssertionFailure() << "plain LibTorch has no " << others.begin()->first;
  }
  if (differing == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << differing << " of " << plain.size() << " tensors differ, worst is " << worst_name << " "
         << worst.text << "; " << allowed(exactness);
}

Tensors tensors_of(const torch::nn::Module& module) {
  Tensors tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.emplace_back(item.key(), item.value().detach());
  }
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

testing::AssertionResult compare_numbers(const std::string& what, double plain, double epl,
                                         const Exactness& exactness) {
  const double relative = plain == epl ? 0 : std::abs(plain - epl) / std::abs(plain);
  if (!too_far(relative, exactness)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << what << ": plain " << exact(plain) << ", EPL " << exact(epl)
                                     << " (relative " << relative << "); " << allowed(exactness);
}

}  // namespace

Trace train_plain(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  return train(make, batch, variant, [&](const Program& program) -> StepTurn {
    auto devices = std::make_shared<PlainDevices>(variant, modules_of(program));
    return [&program, &variant, devices](size_t turn, const Batch& batch) {
      return variant.row_devices() == 1 ? step_plain(program.turns[turn], batch, variant)
                                        : devices->step(program.turns[turn], batch);
    };
  });
}

bool Variant::clips_locally() const {
  const bool after = std::any_of(settings_.begin(), settings_.end(), [](const Setting& setting) {
    return setting.key == "communication.clip_after_allreduce";
  });
  const bool clips = options_.clip_grad_norm > 0 || options_.clip_grad_value > 0;
  return clips && !after && all_devices() > 1;
}

namespace {

void gather_if_spread(std::vector<Trainer>& trainers) {
  if (Env::get().config.get<std::string>("zero.level") != "v2") return;
  for (Trainer& trainer : trainers) trainer.gather_parameters();
}

}  // namespace

Trace train_epl(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  std::vector<Setting> settings = variant.settings();
  settings.emplace_back("pipeline.num_micro_batch", variant.micro_batches());
  settings.emplace_back("communication.gradients_reduce_method", variant.sums() ? "sum" : "mean");
  settings.emplace_back("optimizer.num_apply_group", variant.apply_groups());
  epl::init(epl::Config(settings));
  if (variant.slice_count() > 1) {
    epl::set_default_strategy(epl::replicate(variant.slice_count()));
  } else if (variant.all_devices() > 1 && variant.stage_devices().empty()) {
    epl::set_default_strategy(epl::replicate(1));
  }
  return train(make, batch, variant, [&](const Program& program) -> StepTurn {
    auto trainers = std::make_shared<std::vector<Trainer>>();
    auto turns = std::make_shared<size_t>(0);
    for (const Turn& turn : program.turns) {
      OptimizerList optimizers;
      for (const OptimizerPointer& optimizer : turn.optimizers) optimizers.push_back(*optimizer);
      trainers->emplace_back(turn.modules, optimizers, turn.step, variant.options());
    }
    return [trainers, turns, &variant](size_t turn, const Batch& batch) {
      Trainer& trainer = (*trainers)[turn];
      StepResult result;
      if (variant.has_source()) {
        const int parts = replicas_of_worker(variant, Env::get().cluster.worker_index);
        const std::vector<Batch> micro_batches = cut(batch, parts * variant.micro_batches());
        size_t next = 0;
        result = trainer.step([&] { return micro_batches.at(next++); });
        EXPECT_EQ(next, micro_batches.size()) << "calls of the source in one step";
      } else {
        result = trainer.step(batch);
      }
      EXPECT_FALSE(result.skipped);
      const size_t step = (*turns)++ / trainers->size();
      const bool last = turn + 1 == trainers->size();
      if (last && variant.looks_after(static_cast<int>(step))) gather_if_spread(*trainers);
      return TurnResult{result.loss, result.gradient_norm, result.metrics};
    };
  });
}

Trace train_on_devices(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  const OnDevices devices(variant.all_devices());
  return train_epl(make, batch, variant);
}

testing::AssertionResult compare(const Trace& plain, const Trace& epl, const Exactness& exactness,
                                 const Variant& variant) {
  const Exactness of_sums =
      within(std::max(exactness.relative, 1e-6), "the order of a sum is free");
  const bool one_part = variant.micro_batches() * variant.row_devices() == 1;
  const Exactness& of_losses = one_part ? exactness : of_sums;
  for (size_t i = 0; i < plain.size(); ++i) {
    const std::string at = "after step " + std::to_string(i) + ": ";
    if (auto same = compare_tensors(plain[i].tensors, epl[i].tensors, exactness); !same) {
      return testing::AssertionFailure() << at << same.message();
    }
    for (size_t turn = 0; turn < plain[i].losses.size(); ++turn) {
      const std::string of_turn = at + "turn " + std::to_string(turn) + ", ";
      if (auto same = compare_numbers(of_turn + "loss", plain[i].losses[turn], epl[i].losses[turn],
                                      of_losses);
          !same) {
        return same;
      }
      if (auto same = compare_numbers(of_turn + "gradient norm", plain[i].gradient_norms[turn],
                                      epl[i].gradient_norms[turn], of_sums);
          !same) {
        return same;
      }
    }
  }
  return testing::AssertionSuccess();
}

void complete(std::vector<Trace>& workers) {
  for (size_t step = 0; step < workers[0].size(); ++step) {
    std::map<std::string, torch::Tensor> all;
    for (const Trace& worker : workers) {
      all.insert(worker[step].tensors.begin(), worker[step].tensors.end());
    }
    for (Trace& worker : workers) {
      std::map<std::string, torch::Tensor> own(worker[step].tensors.begin(),
                                               worker[step].tensors.end());
      own.insert(all.begin(), all.end());
      worker[step].tensors.assign(own.begin(), own.end());
    }
  }
}

testing::AssertionResult parity(const MakeProgram& make, const MakeBatch& batch,
                                const Exactness& exactness, const Variant& variant) {
  const Trace plain = train_plain(make, batch, variant);
  Undivided whole(make, batch, variant);
  if (variant.worker_devices().size() == 1) {
    const Trace epl = train_on_devices(make, batch, variant);
    if (auto same = compare(plain, epl, exactness, variant); !same) return same;
    return whole.compare(epl);
  }
  std::vector<Trace> workers = train_on_workers(make, batch, variant);
  if (!variant.stage_devices().empty()) complete(workers);
  for (size_t i = 0; i < workers.size(); ++i) {
    const std::string who = "worker " + std::to_string(i) + ": ";
    if (auto same = compare(plain, workers[i], exactness, variant); !same) {
      return testing::AssertionFailure() << who << same.message();
    }
    if (auto same = compare(workers[0], workers[i], bit_equal(), variant); !same) {
      return testing::AssertionFailure() << who << "not as worker 0: " << same.message();
    }
  }
  return whole.compare(workers[0]);
}

testing::AssertionResult same_modules(const torch::nn::Module& plain, const torch::nn::Module& epl,
                                      const Exactness& exactness) {
  return compare_tensors(tensors_of(plain), tensors_of(epl), exactness);
}

testing::AssertionResult same_tensor(const std::string& name, const torch::Tensor& plain,
                                     const torch::Tensor& epl, const Exactness& exactness) {
  return compare_tensors({{name, plain}}, {{name, epl}}, exactness);
}

}  // namespace epl::parity
