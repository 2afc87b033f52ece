#include "tests/parity/rounding.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace epl::parity {
namespace {

constexpr int kNudges = 3;

double size_of(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().to(torch::kDouble).item<double>();
}

double epsilon_of(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kDouble ? std::numeric_limits<double>::epsilon()
                                                : std::numeric_limits<float>::epsilon();
}

// Buffers of a program and, undefined, the generator that it draws from.
std::vector<torch::Tensor> state_of(const Program& program) {
  std::vector<torch::Tensor> state(1);
  for (const Turn& turn : program.turns) {
    for (const NamedModule& named : turn.modules) {
      for (const torch::Tensor& buffer : named.module->buffers()) state.push_back(buffer);
    }
  }
  return state;
}

torch::Tensor contents(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone()
                          : at::Generator(at::detail::getDefaultCPUGenerator()).get_state();
}

// Even parts leave the last rows of a batch out.
MakeBatch rows_that_are_read(const MakeBatch& batch, const Variant& variant) {
  const int64_t parts = int64_t{variant.micro_batches()} * variant.row_devices();
  return [batch, parts](int step) {
    Batch read;
    for (const torch::Tensor& tensor : batch(step)) {
      read.push_back(parts == 1 ? tensor : tensor.narrow(0, 0, tensor.size(0) / parts * parts));
    }
    return read;
  };
}

bool can_be_cut(const Variant& variant) {
  const bool half =
      std::any_of(variant.settings().begin(), variant.settings().end(), [](const Setting& setting) {
        return setting.key == "communication.fp16" && setting.value == ConfigValue(true);
      });
  return variant.micro_batches() * variant.row_devices() > 1 && !half && !variant.sums() &&
         !variant.clips_locally() && variant.why_it_differs_by_rows().empty();
}

// Parameters moved by a few units in their last places.
Program nudged(Program program, int64_t which) {
  const torch::NoGradGuard no_grad;
  const auto generator =
      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(which));  // not the program's
  for (const Turn& turn : program.turns) {
    for (const NamedModule& named : turn.modules) {
      for (torch::Tensor& parameter : named.module->parameters()) {
        if (!parameter.is_floating_point()) continue;
        const torch::Tensor noise = torch::randn(parameter.sizes(), generator, torch::kFloat);
        parameter.mul_(1 + 2 * epsilon_of(parameter) * noise.to(torch::kDouble));
      }
    }
  }
  return program;
}

}  // namespace

Variant undivided(const Variant& variant) {
  Variant whole;
  whole.steps(variant.steps()).looks_every(variant.looks_every());
  const TrainerOptions& options = variant.options();
  if (options.clip_grad_norm > 0) whole.clip_norm(options.clip_grad_norm, options.clip_norm_type);
  if (options.clip_grad_value > 0) whole.clip_value(options.clip_grad_value);
  if (variant.draws_in_loop()) whole.draw_in_loop();
  if (!variant.with_states()) whole.without_states();
  return whole;
}

double worst_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() == 0) return 0;
  const double off = (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
  return std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
}

std::map<std::string, torch::Tensor> by_name(const Snapshot& snapshot) {
  std::map<std::string, torch::Tensor> all(snapshot.tensors.begin(), snapshot.tensors.end());
  for (size_t i = 0; i < snapshot.losses.size(); ++i) {
    const std::string turn = i == 0 ? "" : " of turn " + std::to_string(i);
    all["loss" + turn] = torch::tensor(snapshot.losses[i], torch::kDouble);
    all["gradient norm" + turn] = torch::tensor(snapshot.gradient_norms[i], torch::kDouble);
  }
  return all;
}

std::string Rounding::difference(const Trace& plain, const Trace& other,
                                 const std::string& except) {
  for (size_t step = 0; step < plain.size(); ++step) {
    const auto here = by_name(plain[step]);
    const auto there = by_name(other[step]);
    for (const auto& [name, tensor] : here) {
      if (name == except) continue;
      const auto found = there.find(name);
      if (found == there.end()) return "EPL has no " + name;
      const torch::Tensor& own = found->second;
      if (!tensor.sizes().equals(own.sizes()) || tensor.scalar_type() != own.scalar_type()) {
        return name + " has another shape or type";
      }
      const double off = worst_difference(tensor, own);
      if (off == 0 || off <= allowed(step, name, tensor)) continue;
      std::ostringstream text;
      text << "after step " << step << ": " << name << " off by " << off << " of "
           << size_of(tensor) << " (rounding explains " << allowed(step, name, tensor) << ")";
      return text.str();
    }
    if (there.size() != here.size()) return "EPL has tensors that the plain loop has not";
  }
  return "";
}

double Rounding::allowed(size_t step, const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.is_floating_point()) return 0;
  if (nudged_.empty()) nudge();
  const torch::Tensor first = by_name(nudged_[0][step]).at(name);
  double moved = 0;
  bool single = false;  // numbers that are compared as double come from tensors that may be single
  for (const Trace& trace : nudged_) {
    const auto all = by_name(trace[step]);
    moved = std::max(moved, worst_difference(all.at(name), tensor));
    moved = std::max(moved, worst_difference(all.at(name), first));
    for (const auto& [other, value] : by_name(trace.back())) {
      single |= value.scalar_type() == torch::kFloat;
    }
  }
  const double epsilon = single ? std::numeric_limits<float>::epsilon() : epsilon_of(tensor);
  // The mean of numbers about 1 that cancel is 0 up to the last bit of one of them.
  return 1e3 * epsilon * size_of(tensor) + epsilon + 50 * moved;
}

void Rounding::nudge() {
  for (int i = 1; i <= kNudges; ++i) {
    nudged_.push_back(train_plain([&] { return nudged(make_(), i); }, batch_, variant_));
  }
}

Undivided::Undivided(const MakeProgram& make, const MakeBatch& batch, const Variant& variant)
    : rounding_(make, rows_that_are_read(batch, variant), variant) {
  if (!can_be_cut(variant)) return;
  std::vector<torch::Tensor> state, before;
  const auto noted = [&] {
    Program made = make();
    state = state_of(made);
    for (const torch::Tensor& tensor : state) before.push_back(contents(tensor));
    return made;
  };
  plain_ = train_plain(noted, rows_that_are_read(batch, variant), undivided(variant));
  for (size_t i = 0; i < state.size(); ++i) {
    if (!contents(state[i]).equal(before[i])) plain_.clear();
  }
}

testing::AssertionResult Undivided::compare(const Trace& epl) {
  if (plain_.empty()) return testing::AssertionSuccess();
  const std::string off = rounding_.difference(plain_, epl);
  if (off.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "not as the undivided plain loop: " << off;
}

}  // namespace epl::parity
