// What a plan moves between devices and what each device holds, read from its text
// (Trainer::plan()): the calls of epl:: operators, the pieces of parameters, and the gradients that
// several devices have an addend of.
//
//   const PlanFacts facts = read_plan(trainer.plan(), /*devices=*/2);
//   facts.moved();                         // bytes that a device sends in a step, at most
//   facts.share_held("head.weight");       // 0.5
//
// Bytes are those that a device sends where everybody sends as little as possible, as
// runtime/collectives.h counts them. A gradient that several devices have an addend of counts as an
// all_reduce, also where devices of one worker read each other's gradients instead of moving them.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace epl::bench {

struct PlanFacts {
  struct Device {
    std::map<std::string, double> sent;   // bytes of a step, by the name of the collective
    std::map<std::string, double> held;   // bytes of its piece, by parameter or other tensor
    std::map<std::string, double> share;  // of the whole tensor
    std::vector<std::string> gradients;   // parameters
  };
  std::vector<Device> programs;  // each stands for as many devices as any other
  int devices = 1;

  double sent(const std::string& collective) const {
    double most = 0;
    for (const auto& program : programs) {
      const auto found = program.sent.find(collective);
      if (found != program.sent.end()) most = std::max(most, found->second);
    }
    return most;
  }

  // Of gradients that are the sum of what several devices computed.
  double sent_for_gradients(const Device& program) const {
    double bytes = 0;
    for (const auto& name : program.gradients) {
      const double addends = programs_with_addend(name) * devices / programs.size();
      bytes += 2 * program.held.at(name) * (addends - 1) / addends;
    }
    return bytes;
  }

  double moved() const {
    double most = 0;
    for (const auto& program : programs) {
      double bytes = sent_for_gradients(program);
      for (const auto& [collective, sent] : program.sent) bytes += sent;
      most = std::max(most, bytes);
    }
    return most;
  }

  // The largest piece of a parameter that a device has.
  double share_held(const std::string& parameter) const {
    double most = 0;
    for (const auto& program : programs) {
      const auto found = program.share.find(parameter);
      if (found != program.share.end()) most = std::max(most, found->second);
    }
    return most;
  }

 private:
  // Pieces of a parameter that is cut have one owner each.
  double programs_with_addend(const std::string& parameter) const {
    double count = 0;
    for (const auto& program : programs) {
      const auto& names = program.gradients;
      count += std::find(names.begin(), names.end(), parameter) != names.end();
      if (program.share.at(parameter) < 1) return 1;
    }
    return count;
  }
};

// "64, 512" as its numbers.
inline std::vector<double> numbers_of(const std::string& list) {
  std::vector<double> numbers;
  std::istringstream in(list);
  for (std::string number; std::getline(in, number, ',');) numbers.push_back(std::stod(number));
  return numbers;
}

// Of a type such as f32[64,512].
inline double bytes_of(const std::string& element, const std::string& sizes) {
  double bytes = std::stod(element.substr(element.find_first_of("0123456789"))) / 8;
  for (double size : numbers_of(sizes)) bytes *= size;
  return bytes;
}

// What the device of this rank sends in a call whose result has so many bytes; `operands` is the
// text between its brackets.
inline double bytes_sent(const std::string& collective, double result, const std::string& operands,
                         size_t rank, double devices) {
  const double others = devices - 1;
  if (collective == "all_reduce") return 2 * result * others / devices;
  // All devices have what they take from.
  if (collective == "own_piece" || collective == "own_addend") return 0;
  std::vector<std::vector<double>> lists;
  static const std::regex list(R"(\[([\d, ]*)\])");
  for (std::sregex_iterator found(operands.begin(), operands.end(), list), end; found != end;
       ++found) {
    lists.push_back(numbers_of((*found)[1]));
  }
  const auto part = [&](size_t which) {
    const auto& pieces = lists.at(which);
    return pieces.at(rank) / std::accumulate(pieces.begin(), pieces.end(), 0.0);
  };
  if (collective == "all_gather") return result * part(0) * others;
  if (collective == "reduce_scatter") return result / part(0) - result;
  if (collective == "all_to_all") return result * part(0) / part(1) * (1 - part(1));
  throw std::runtime_error("it is not known what epl::" + collective + " sends");
}

inline PlanFacts read_plan(const std::string& plan, int devices) {
  static const std::regex call(
      R"(^ +s\d+ ([a-z]+\d+)\[([\d,]*)\].* = epl::(\w+)(?:\.out)?\((.*)\)  \w+ward.*)");
  static const std::regex leaf(
      R"re(^ +s\d+ ([a-z]+\d+)\[([\d,]*)\]\S*(?: by role -?\d+)? = "(.*)"(?: \[(\d+):(\d+) of (\d+) in dim \d+\])?$)re");
  static const std::regex gradient(R"re(^ +\w+ of "(.*)"$)re");
  static const std::regex shared(R"(^program \d+  (\d+) roles, .*)");
  PlanFacts facts;
  facts.devices = devices;
  size_t roles = 1;  // that share the last program: each has its facts
  const auto repeat = [&] {
    for (; roles > 1; --roles) facts.programs.push_back(PlanFacts::Device(facts.programs.back()));
  };
  std::string section;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, 8, "program ") == 0) {
      repeat();
      facts.programs.emplace_back();
      std::smatch several;
      roles = std::regex_match(line, several, shared) ? std::stoul(several[1]) : 1;
    }
    if (!line.empty() && line[0] != ' ') section = line.substr(0, line.find(' '));
    if (facts.programs.empty()) continue;
    auto& program = facts.programs.back();
    const size_t rank = facts.programs.size() - 1;
    std::smatch found;
    if (section == "segment" && std::regex_match(line, found, call)) {
      program.sent[found[3]] +=
          bytes_sent(found[3], bytes_of(found[1], found[2]), found[4], rank, devices);
    } else if (section == "leaves" && std::regex_match(line, found, leaf)) {
      program.held[found[3]] = bytes_of(found[1], found[2]);
      program.share[found[3]] =
          found[6].matched ? (std::stod(found[5]) - std::stod(found[4])) / std::stod(found[6]) : 1;
    } else if (section == "gradients" && std::regex_match(line, found, gradient)) {
      program.gradients.push_back(found[1]);
    }
  }
  repeat();
  if (facts.programs.empty()) throw std::runtime_error("a plan has no programs");
  return facts;
}

}  // namespace epl::bench
