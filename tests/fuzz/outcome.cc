#include "tests/fuzz/outcome.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>

#include "tests/fuzz/draft.h"

namespace epl::fuzz {
namespace {

using parity::Snapshot;
using parity::Trace;
using parity::Variant;

// How the program is made: as it is, or with its parameters moved by a few units in the last place.
struct Start {
  double nudge = 0;
  uint64_t seed = 0;
};

parity::Program program_of(const Recipe& recipe, const Start& start) {
  auto net = std::make_shared<Net>(recipe);
  if (start.nudge > 0) {
    const torch::NoGradGuard no_grad;
    torch::manual_seed(start.seed);
    for (Tensor& parameter : net->parameters()) {
      parameter.mul_(1 + start.nudge * torch::randn_like(parameter));
    }
    torch::manual_seed(7);
  }
  auto optimizer = make_optimizer(recipe, *net);
  parity::Program program = parity::program(net, optimizer, [net, recipe](const Batch& batch) {
    return run_recipe(recipe, *net, batch);
  });
  program.before_step = [net, optimizer, recipe](int step) {
    for (const Event& event : recipe.training.events) {
      if (event.step != step) continue;
      if (event.what == Event::What::kLearningRate) {
        for (auto& group : optimizer->param_groups()) {
          group.options().set_lr(group.options().get_lr() * event.factor);
        }
        continue;
      }
      for (size_t i = 0; i < recipe.leaves.size(); ++i) {
        if (recipe.leaves[i].value != event.value) continue;
        net->leaves[i].requires_grad_(event.what == Event::What::kThaw);
      }
    }
  };
  return program;
}

parity::MakeProgram maker(const Recipe& recipe, Start start = {}) {
  return [recipe, start] { return program_of(recipe, start); };
}

parity::MakeBatch batches(const Recipe& recipe) {
  return [recipe](int step) { return make_batch(recipe, step); };
}

Variant undivided(const Case& one) {
  Variant variant = Variant().steps(one.variant.steps());
  const TrainerOptions& options = one.variant.options();
  if (options.clip_grad_norm > 0) variant.clip_norm(options.clip_grad_norm);
  if (options.clip_grad_value > 0) variant.clip_value(options.clip_grad_value);
  return variant;
}

bool finite(const Trace& trace) {
  for (const Snapshot& snapshot : trace) {
    for (double loss : snapshot.losses) {
      if (!std::isfinite(loss)) return false;
    }
    for (const auto& [name, tensor] : snapshot.tensors) {
      if (tensor.is_floating_point() && !tensor.isfinite().all().item<bool>()) return false;
    }
  }
  return true;
}

double worst(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0) return 0;
  const double off = (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
  return std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
}

double size_of(const Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().to(torch::kDouble).item<double>();
}

std::map<std::string, Tensor> by_name(const Snapshot& snapshot) {
  std::map<std::string, Tensor> all(snapshot.tensors.begin(), snapshot.tensors.end());
  for (size_t i = 0; i < snapshot.losses.size(); ++i) {
    all["loss"] = torch::tensor(snapshot.losses[i], torch::kDouble);
    all["gradient norm"] = torch::tensor(snapshot.gradient_norms[i], torch::kDouble);
  }
  return all;
}

// Compares traces; where they are further apart than rounding should bring them, asks how far
// rounding does bring this program: by the plain loop from parameters that differ in their last
// places.
class Judge {
 public:
  explicit Judge(const Case& one) : case_(one) {}

  // Empty where they are the same.
  std::string difference(const Trace& plain, const Trace& other, bool exactly) {
    for (size_t step = 0; step < plain.size(); ++step) {
      const auto here = by_name(plain[step]);
      auto there = by_name(other[step]);
      for (const auto& [name, tensor] : here) {
        if (case_.sums && name == "loss" && case_.parts > 1) continue;
        const auto found = there.find(name);
        if (found == there.end()) return "EPL has no " + name;
        if (!tensor.sizes().equals(found->second.sizes()) ||
            tensor.scalar_type() != found->second.scalar_type()) {
          return name + " has another shape or type";
        }
        const double off = worst(tensor, found->second);
        const bool sum = name == "gradient norm";  // added up in an order of its own
        if (off == 0) continue;
        if ((!exactly || sum) && off <= allowed(step, name, tensor)) continue;
        std::ostringstream text;
        text << "after step " << step << ": " << name << " off by " << off << " of "
             << size_of(tensor) << " (allowed "
             << (exactly && !sum ? 0 : allowed(step, name, tensor)) << ")";
        return text.str();
      }
      if (there.size() != here.size()) return "EPL has tensors that the plain loop has not";
    }
    return "";
  }

 private:
  double epsilon() const {
    return case_.recipe.dtype == torch::kDouble ? std::numeric_limits<double>::epsilon()
                                                : std::numeric_limits<float>::epsilon();
  }

  double allowed(size_t step, const std::string& name, const Tensor& tensor) {
    const double base = 1e3 * epsilon() * size_of(tensor) + 1e2 * epsilon() * 1e-3;
    if (nudged_.empty()) nudge();
    double moved = 0;
    const Tensor first = by_name(nudged_[0][step]).at(name);
    for (const Trace& trace : nudged_) {
      moved = std::max(moved, worst(by_name(trace[step]).at(name), tensor));
      moved = std::max(moved, worst(by_name(trace[step]).at(name), first));
    }
    return base + 50 * moved;
  }

  void nudge() {
    for (uint64_t i = 1; i <= 3; ++i) {
      nudged_.push_back(parity::train_plain(maker(case_.recipe, {2 * epsilon(), i}),
                                            batches(case_.recipe), undivided(case_)));
    }
  }

  const Case& case_;
  std::vector<Trace> nudged_;
};

Trace train_by_epl(const Case& one) {
  const auto make = maker(one.recipe);
  if (one.variant.worker_devices().size() == 1) {
    return parity::train_on_devices(make, batches(one.recipe), one.variant);
  }
  std::vector<Trace> workers = parity::train_on_workers(make, batches(one.recipe), one.variant);
  for (const Trace& worker : workers) {
    if (!parity::compare(workers[0], worker, parity::bit_equal(), one.variant)) {
      throw std::runtime_error("workers have different parameters");
    }
  }
  return workers[0];
}

std::string one_line(std::string text) {
  if (const size_t end = text.find("Exception raised from"); end != std::string::npos) {
    text.resize(end);
  }
  return text;
}

}  // namespace

Outcome judge(const Case& one) {
  Judge judge(one);
  Trace plain;
  try {
    plain = parity::train_plain(maker(one.recipe), batches(one.recipe), undivided(one));
    if (!finite(plain)) return {Verdict::kIllegal, "the plain loop leaves the numbers"};
    if (one.parts > 1) {
      // Cut by the plain loop itself: programs whose rows look at each other give something else.
      Variant cut = undivided(one).micro_batches(one.parts);
      if (one.sums) cut.sum();
      const Trace divided = parity::train_plain(maker(one.recipe), batches(one.recipe), cut);
      const std::string off = judge.difference(plain, divided, false);
      if (!off.empty()) return {Verdict::kMixes, off};
    }
  } catch (const std::exception& error) {
    return {one.parts > 1 && !plain.empty() ? Verdict::kMixes : Verdict::kIllegal,
            one_line(error.what())};
  }
  try {
    const Trace epl = train_by_epl(one);
    const bool exactly = one.mode == "one";
    const std::string off = judge.difference(plain, epl, exactly);
    return {off.empty() ? Verdict::kEqual : Verdict::kFailed, off};
  } catch (const epl::Error& error) {
    return {Verdict::kRefused, error.what()};
  } catch (const std::exception& error) {
    return {Verdict::kFailed, std::string("threw: ") + one_line(error.what())};
  }
}

Outcome judge_apart(const std::function<Case()>& make) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::cout.flush();  // or the child would write it once more
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("cannot fork");
  if (pid == 0) {
    close(ends[0]);
    Outcome outcome;
    try {
      outcome = judge(make());
    } catch (const std::exception& error) {
      outcome = {Verdict::kIllegal, one_line(error.what())};
    }
    std::string text(1, static_cast<char>('0' + static_cast<int>(outcome.verdict)));
    text += outcome.text.substr(0, 4000);
    if (write(ends[1], text.data(), text.size()) < 0) _exit(3);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  pollfd waiting{ends[0], POLLIN, 0};
  bool hangs = false;
  while (true) {
    constexpr int kLongest = 120000;
    if (poll(&waiting, 1, kLongest) == 0) {
      hangs = true;
      kill(pid, SIGKILL);
      break;
    }
    const ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (hangs) return {Verdict::kFailed, "hangs"};
  if (text.empty()) return {Verdict::kFailed, "crashed with status " + std::to_string(status)};
  return {static_cast<Verdict>(text[0] - '0'), text.substr(1)};
}

}  // namespace epl::fuzz
