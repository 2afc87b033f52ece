// Random programs, plain LibTorch against EPL.
//
//   fuzz_programs --mode one --seeds 300            some hundred programs on one device
//   fuzz_programs --mode split --first-seed 17 --seeds 1 --print   one of them, as text
//   fuzz_programs --mode all --seeds 1000 --shrink  failures become small programs
//
// --leaves adds what happens to parameters themselves: hooks, writes in the step, a backward() in a
// backward(), trainers that share an optimizer; and pooling outside of autograd.
//
// --float and --double take the same program with other numbers: what is off by rounding alone is
// off by 1e-9 as much in double precision, a mistake as much as before.
//
// Ends with 1 where a program came out differently, crashed, hung or met an internal error.
#include <ATen/Parallel.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>

#include "tests/fuzz/outcome.h"

namespace epl::fuzz {
namespace {

struct Options {
  std::string mode = "all";
  uint64_t first_seed = 1;
  uint64_t seeds = 100;
  int steps = 3;
  bool print = false;
  bool shrinks = false;
  bool leaves = false;
  bool recomputes = false;
  std::optional<torch::ScalarType> dtype;

  CaseOptions of(const std::string& one_mode, uint64_t seed) const {
    return {one_mode, seed, steps, leaves, dtype, recomputes};
  }
};

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto next = [&]() -> std::string {
      if (i + 1 >= count) throw std::runtime_error(word + " needs a value");
      return words[++i];
    };
    if (word == "--mode") {
      options.mode = next();
    } else if (word == "--seeds") {
      options.seeds = std::stoull(next());
    } else if (word == "--first-seed") {
      options.first_seed = std::stoull(next());
    } else if (word == "--steps") {
      options.steps = std::stoi(next());
    } else if (word == "--print") {
      options.print = true;
    } else if (word == "--leaves") {
      options.leaves = true;
    } else if (word == "--recompute") {
      options.recomputes = true;
    } else if (word == "--double" || word == "--float") {
      options.dtype = word == "--double" ? torch::kDouble : torch::kFloat;
    } else if (word == "--shrink") {
      options.shrinks = true;
    } else {
      throw std::runtime_error(
          "usage: fuzz_programs [--mode all|one|micro|devices|slices|workers|"
          "stages|split] [--seeds N] [--first-seed S] [--steps K] [--leaves] [--recompute] "
          "[--float] "
          "[--double] [--print] [--shrink]");
    }
  }
  return options;
}

// A message's first line without what differs from program to program.
std::string head_of(const std::string& message) {
  std::string head = message.substr(0, message.find('\n'));
  head = std::regex_replace(head, std::regex("`[^`]*`"), "`_`");
  head = std::regex_replace(head, std::regex("%[0-9]+"), "%N");
  return std::regex_replace(head, std::regex("-?[0-9]+(\\.[0-9]+)?(e-?[0-9]+)?"), "N");
}

struct Counts {
  std::map<Verdict, int> of;
  std::map<std::string, std::pair<int, uint64_t>> refused;  // by head: how many, the first seed
};

void tell_failure(const Options& options, const std::string& mode, uint64_t seed,
                  const Outcome& outcome) {
  const char* const dtype = options.dtype == torch::kDouble ? " --double" : " --float";
  std::cout << "FAILED mode " << mode << ", seed " << seed << ": " << outcome.text << "\n"
            << "  again: build/bin/fuzz_programs --mode " << mode << " --first-seed " << seed
            << " --seeds 1 --steps " << options.steps << (options.leaves ? " --leaves" : "")
            << (options.recomputes ? " --recompute" : "") << (options.dtype ? dtype : "")
            << " --print --shrink\n";
  Case failing = make_case(options.of(mode, seed));
  std::cout << failing.str();
  if (!options.shrinks) return;
  failing = shrink(failing);
  std::cout << "shrunk: " << judge_apart([&] { return failing; }).text << "\n"
            << failing.str() << std::endl;
}

void print_case(const CaseOptions& wanted) {
  try {
    std::cout << make_case(wanted).str() << std::flush;
  } catch (const std::exception& error) {
    std::cout << "seed " << wanted.seed << ": " << error.what() << "\n";
  }
}

void report(const std::string& mode, const Counts& counts) {
  const auto of = [&](Verdict verdict) {
    const auto found = counts.of.find(verdict);
    return found == counts.of.end() ? 0 : found->second;
  };
  std::cout << "mode " << mode << ": " << of(Verdict::kEqual) << " equal, " << of(Verdict::kRefused)
            << " refused, " << of(Verdict::kFailed) << " failed; " << of(Verdict::kMixes)
            << " mix rows, " << of(Verdict::kIllegal) << " not legal in plain LibTorch\n";
  for (const auto& [head, found] : counts.refused) {
    std::cout << "  refused " << found.first << " (seed " << found.second << " ...): " << head
              << "\n";
  }
  std::cout << std::flush;
}

// What rounding explains is estimated, and now and then too low. In double precision rounding is a
// billionth of what it was, and a mistake as much as before: that decides, but for bits.
Outcome judge_twice(CaseOptions wanted) {
  const Outcome outcome = judge_apart([&] { return make_case(wanted); });
  const bool estimated = outcome.text.find("rounding explains") != std::string::npos;
  if (outcome.verdict != Verdict::kFailed || !estimated || wanted.dtype) return outcome;
  wanted.dtype = torch::kDouble;
  const Outcome precise = judge_apart([&] { return make_case(wanted); });
  return precise.verdict == Verdict::kEqual ? precise : outcome;
}

int run_mode(const Options& options, const std::string& mode) {
  Counts counts;
  for (uint64_t seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
    const CaseOptions wanted = options.of(mode, seed);
    if (options.print) print_case(wanted);
    const Outcome outcome = judge_twice(wanted);
    ++counts.of[outcome.verdict];
    if (options.print) std::cout << "outcome: " << outcome.text << "\n";
    if (outcome.verdict == Verdict::kFailed) tell_failure(options, mode, seed, outcome);
    if (outcome.verdict == Verdict::kRefused) {
      auto& found = counts.refused[head_of(outcome.text)];
      if (found.first++ == 0) found.second = seed;
    }
  }
  report(mode, counts);
  return counts.of[Verdict::kFailed];
}

int run(int count, char** words) {
  const Options options = parse(count, words);
  at::set_num_threads(1);  // children are forked: no threads may stand before
  int failed = 0;
  for (const std::string& mode : modes()) {
    if (options.mode == "all" || options.mode == mode) failed += run_mode(options, mode);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace epl::fuzz

int main(int count, char** words) {
  try {
    return epl::fuzz::run(count, words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
