#include "tests/fuzz/outcome.h"

#include <ATen/CPUGeneratorImpl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>

#include "tests/fuzz/draft.h"
#include "tests/parity/rounding.h"

namespace epl::fuzz {
namespace {

using parity::Snapshot;
using parity::Trace;
using parity::Variant;

// Makes the gradient of each value that it is shown wrong by a few units in the last places of each
// element, as kernels that add up in another order do. Parameters that differ in their last places
// (parity/rounding.h) do not show what that leaves of a gradient that cancels out: of signs, say,
// which are what they were. Adam makes a whole step of it.
See rough_gradients(uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);  // not the program's
  return [generator](const Tensor& value) {
    // register_hook() of LibTorch 1.13 crashes on some views that were written in place.
    if (!value.requires_grad() || value.is_view()) return;
    value.register_hook([generator](const Tensor& gradient) {
      if (!gradient.defined() || gradient.layout() != torch::kStrided) return gradient;
      const double epsilon = gradient.scalar_type() == torch::kDouble
                                 ? std::numeric_limits<double>::epsilon()
                                 : std::numeric_limits<float>::epsilon();
      const Tensor noise = torch::randn(gradient.sizes(), generator, torch::kFloat);
      const Tensor factor = 1 + 2 * epsilon * noise.to(torch::kDouble);
      return (gradient.to(torch::kDouble) * factor).to(gradient.scalar_type());
    });
  };
}

parity::Program program_of(const Recipe& recipe, const See& see = nullptr) {
  auto net = std::make_shared<Net>(recipe);
  auto optimizer = make_optimizer(recipe, *net);
  parity::Program program;
  for (int turn = 0; turn < recipe.training.turns; ++turn) {
    program.turns.push_back(
        {{{"", net}}, {optimizer}, [net, recipe, turn, see](const Batch& batch) {
           return run_recipe(recipe, *net, batch, turn, see);
         }});
  }
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

parity::MakeProgram maker(const Recipe& recipe) {
  return [recipe] { return program_of(recipe); };
}

// Each program that it makes rounds in a way of its own.
parity::MakeProgram rough_maker(const Recipe& recipe) {
  const auto made = std::make_shared<uint64_t>(0);
  return [recipe, made] { return program_of(recipe, rough_gradients(++*made)); };
}

parity::MakeBatch batches(const Recipe& recipe) {
  return [recipe](int step) { return make_batch(recipe, step); };
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

// On one device bits are equal; the norm of gradients alone is added up in an order of its own.
std::string difference_of_bits(const Trace& plain, const Trace& other) {
  for (size_t step = 0; step < plain.size(); ++step) {
    const auto here = parity::by_name(plain[step]);
    const auto there = parity::by_name(other[step]);
    for (const auto& [name, tensor] : here) {
      const auto found = there.find(name);
      if (found == there.end()) return "EPL has no " + name;
      if (!tensor.sizes().equals(found->second.sizes())) return name + " has another shape";
      const double off = parity::worst_difference(tensor, found->second);
      const double allowed = name == "gradient norm" ? 1e-5 * tensor.abs().max().item<double>() : 0;
      if (off <= allowed) continue;
      std::ostringstream text;
      text << "after step " << step << ": " << name << " off by " << off << " of "
           << tensor.abs().max().to(torch::kDouble).item<double>() << " where bits must be equal";
      return text.str();
    }
    if (there.size() != here.size()) return "EPL has tensors that the plain loop has not";
  }
  return "";
}

Trace train_by_epl(const Case& one) {
  const auto make = maker(one.recipe);
  if (one.variant.worker_devices().size() == 1) {
    return parity::train_on_devices(make, batches(one.recipe), one.variant);
  }
  std::vector<Trace> workers = parity::train_on_workers(make, batches(one.recipe), one.variant);
  for (const Trace& worker : workers) {
    const auto same = parity::compare(workers[0], worker, parity::bit_equal(), one.variant);
    if (!same) {
      throw std::runtime_error(std::string("workers have different parameters: ") + same.message());
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
  const auto make = maker(one.recipe);
  const auto rows = batches(one.recipe);
  const Variant whole = parity::undivided(one.variant);
  parity::Rounding rounding(rough_maker(one.recipe), rows, one.variant);
  // With summed gradients the loss that EPL tells is a mean of sums.
  const std::string except = one.sums && one.parts > 1 ? "loss" : "";
  Trace plain;
  try {
    plain = parity::train_plain(make, rows, whole);
    if (!finite(plain)) return {Verdict::kIllegal, "the plain loop leaves the numbers"};
    if (one.parts > 1) {
      // Cut by the plain loop itself: programs whose rows look at each other give something else.
      Variant cut = Variant(whole).micro_batches(one.parts);
      if (one.sums) cut.sum();
      const Trace divided = parity::train_plain(make, rows, cut);
      const std::string off = rounding.difference(plain, divided, except);
      if (!off.empty()) return {Verdict::kMixes, off};
    }
  } catch (const std::exception& error) {
    return {one.parts > 1 && !plain.empty() ? Verdict::kMixes : Verdict::kIllegal,
            one_line(error.what())};
  }
  try {
    const Trace epl = train_by_epl(one);
    // Gates of a GRU are views, and LibTorch's kernels round by how their results lie.
    const auto is_gru = [](const Node& node) { return node.kind->name == "gru"; };
    const auto& nodes = one.recipe.nodes;
    const bool bits = one.mode == "one" && std::none_of(nodes.begin(), nodes.end(), is_gru);
    const std::string off =
        bits ? difference_of_bits(plain, epl) : rounding.difference(plain, epl, except);
    if (!off.empty() || !one.recomputes) {
      return {off.empty() ? Verdict::kEqual : Verdict::kFailed, off};
    }
    Case again = one;
    again.variant.with("gradient_checkpoint.type", "auto")
        .with("gradient_checkpoint.check_gradients", true);
    const std::string differs = difference_of_bits(epl, train_by_epl(again));
    if (differs.empty()) return {Verdict::kEqual, ""};
    return {Verdict::kFailed, "with values that are computed again: " + differs};
  } catch (const epl::Error& error) {
    return {Verdict::kRefused, error.what()};
  } catch (const parity::WorkersFailed& error) {
    const bool refused = error.kind() == parity::WorkersFailed::Kind::kRefused;
    return {refused ? Verdict::kRefused : Verdict::kFailed, error.what()};
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
