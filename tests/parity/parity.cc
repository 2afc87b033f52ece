#include "tests/parity/parity.h"

#include <algorithm>
#include <cmath>
#include <sstream>

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
        auto found = all.find(c10::guts::to_string(parameter.unsafeGetTensorImpl()));
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

// The loop that every LibTorch program has, with gradient accumulation and clipping as users add
// it.
TurnResult step_plain(const Turn& turn, const Batch& batch, const Variant& variant) {
  TurnResult result;
  for (const OptimizerPointer& optimizer : turn.optimizers) optimizer->zero_grad();
  const int count = variant.micro_batches();
  for (const Batch& micro_batch : count == 1 ? std::vector<Batch>{batch} : cut(batch, count)) {
    StepOutput output = turn.step(micro_batch);
    (count == 1 || variant.sums() ? output.loss : output.loss / count).backward();
    result.loss += output.loss.item<double>() / count;
    for (const auto& [name, value] : output.metrics) {
      torch::Tensor& merged = result.metrics[name];
      merged = merged.defined() ? merged + value.detach() : copy(value);
    }
  }
  for (auto& [name, value] : result.metrics) {
    if (count > 1) value = value / count;
  }
  std::vector<torch::Tensor> parameters;
  for (const OptimizerPointer& optimizer : turn.optimizers) {
    for (const auto& group : optimizer->param_groups()) {
      parameters.insert(parameters.end(), group.params().begin(), group.params().end());
    }
  }
  const TrainerOptions& options = variant.options();
  if (options.clip_grad_norm > 0) {
    result.gradient_norm = torch::nn::utils::clip_grad_norm_(parameters, options.clip_grad_norm,
                                                             options.clip_norm_type);
  }
  if (options.clip_grad_value > 0) {
    torch::nn::utils::clip_grad_value_(parameters, options.clip_grad_value);
  }
  for (const OptimizerPointer& optimizer : turn.optimizers) optimizer->step();
  return result;
}

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
    append_tensors(modules, optimizers, snapshot);
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
    return [&program, &variant](size_t turn, const Batch& batch) {
      return step_plain(program.turns[turn], batch, variant);
    };
  });
}

Trace train_epl(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  epl::init(epl::Config{
      {"pipeline.num_micro_batch", variant.micro_batches()},
      {"communication.gradients_reduce_method", variant.sums() ? "sum" : "mean"},
      {"optimizer.num_apply_group", variant.apply_groups()},
  });
  return train(make, batch, variant, [&](const Program& program) -> StepTurn {
    auto trainers = std::make_shared<std::vector<Trainer>>();
    for (const Turn& turn : program.turns) {
      OptimizerList optimizers;
      for (const OptimizerPointer& optimizer : turn.optimizers) optimizers.push_back(*optimizer);
      trainers->emplace_back(turn.modules, optimizers, turn.step, variant.options());
    }
    return [trainers, &variant](size_t turn, const Batch& batch) {
      Trainer& trainer = (*trainers)[turn];
      StepResult result;
      if (variant.has_source()) {
        const std::vector<Batch> micro_batches = cut(batch, variant.micro_batches());
        size_t next = 0;
        result = trainer.step([&] { return micro_batches.at(next++); });
        EXPECT_EQ(next, micro_batches.size()) << "calls of the source in one step";
      } else {
        result = trainer.step(batch);
      }
      EXPECT_FALSE(result.skipped);
      return TurnResult{result.loss, result.gradient_norm, result.metrics};
    };
  });
}

testing::AssertionResult compare(const Trace& plain, const Trace& epl, const Exactness& exactness,
                                 const Variant& variant) {
  const Exactness of_sums =
      within(std::max(exactness.relative, 1e-6), "the order of a sum is free");
  const Exactness& of_losses = variant.micro_batches() == 1 ? exactness : of_sums;
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

testing::AssertionResult parity(const MakeProgram& make, const MakeBatch& batch,
                                const Exactness& exactness, const Variant& variant) {
  return compare(train_plain(make, batch, variant), train_epl(make, batch, variant), exactness,
                 variant);
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
