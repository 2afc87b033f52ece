#include "program/parse.h"

#include <epl/error.h>

#include <sstream>
#include <utility>

#include "base/text.h"
#include "program/parse_parts.h"
#include "program/text.h"
#include "program/text_rules.h"

namespace epl {
namespace {

constexpr size_t kMostDevices = 1 << 16;  // of one program: bytes of all of them can be counted

class PlanParser {
 public:
  explicit PlanParser(const std::string& text) : lines_("plan", text), length_(text.size()) {}

  Plan parse() {
    parse_header();
    while (lines_.looking_at("note ")) parse_remark();
    if (lines_.looking_at("loss ")) parse_loss();
    while (lines_.looking_at("metric ")) parse_metric();
    const bool has_schedule = !lines_.at_end() && !lines_.looking_at("transfer ") &&
                              !lines_.looking_at("tied") && !lines_.looking_at("program ");
    if (has_schedule) plan_.schedule = parse_schedule(lines_);
    while (lines_.looking_at("transfer ")) parse_transfer();
    std::vector<TextLine> tied;
    while (lines_.looking_at("tied")) tied.push_back(lines_.take("tied"));
    for (size_t i = 0; i < programs_; ++i) parse_program_lines(i);
    for (const auto& [role, line] : named_roles_) {
      if (static_cast<size_t>(role) >= plan_.roles()) {
        line.fail(concat("role ", role, " of ", plan_.roles()));
      }
    }
    if (!lines_.at_end()) lines_.take("").fail("expected the end of the plan");
    for (auto& line : tied) parse_tied(line);
    return std::move(plan_);
  }

 private:
  void parse_header() {
    TextLine& line = lines_.take("'plan:'");
    line.expect("plan:");
    programs_ = static_cast<size_t>(line.index(length_));
    if (!line.take("programs")) line.expect("program");
    line.expect(",");
    plan_.micro_batches = line.small_integer();
    line.expect("micro batches");
    line.expect(",");
    if (!line.looking_at("arena")) {
      plan_.replicas = line.small_integer();
      if (!line.take("replicas")) line.expect("replica");
      if (line.take("of")) {
        devices_ = line.small_integer();
        line.expect("devices");
      }
      line.expect(",");
    }
    line.expect("arena");
    skip_bytes(line);
    line.expect_end();
  }

  void parse_loss() {
    TextLine& line = lines_.take("loss");
    line.expect("loss");
    parse_output(line, plan_.loss);
    line.expect(", over");
    plan_.loss_parts = parse_real(line);
    line.expect(", seed");
    plan_.seed = parse_real(line);
    line.expect_end();
  }

  void parse_metric() {
    TextLine& line = lines_.take("metric");
    line.expect("metric");
    PlanOutput& metric = plan_.metrics.emplace_back();
    metric.name = line.string();
    line.expect("of");
    metric.collection = line.string();
    line.expect(",");
    parse_output(line, metric);
    line.expect_end();
  }

  // "role 1, 2 devices, sum"
  void parse_output(TextLine& line, PlanOutput& output) {
    line.expect("role");
    output.role = role_number(line);
    if (line.at_end() || line.looking_at(", over")) return;
    line.expect(",");
    output.devices = line.small_integer();
    line.expect("devices");
    output.all_alike = line.take("alike");
    if (output.all_alike) return;
    line.expect(",");
    if (line.take("sum")) {
      output.merge = SliceMerge::kSum;
    } else if (line.take("rows in dim")) {
      output.merge = SliceMerge::kConcat;
      output.batch_dim = line.small_integer();
    } else {
      line.expect("mean");
    }
  }

  static double parse_real(TextLine& line) {
    const TextLine::Number number = line.number();
    return number.is_integer ? static_cast<double>(number.integer) : number.real;
  }

  void parse_remark() {
    TextLine& line = lines_.take("note");
    line.expect("note");
    plan_.remarks.push_back(line.looking_at("\"") ? line.string() : line.until("\n"));
    line.expect_end();
  }

  void parse_transfer() {
    TextLine& line = lines_.take("transfer");
    line.expect(concat("transfer ", plan_.transfers.size()));
    Transfer transfer;
    transfer.name = parse_words(line, ", role");
    line.expect(", role");
    transfer.from = role_number(line);
    line.expect("to");
    transfer.to = role_number(line);
    line.expect(":");
    transfer.items.resize(static_cast<size_t>(line.index(length_)));
    if (!line.take("values")) line.expect("value");
    line.expect(",");
    skip_bytes(line);
    line.expect("a micro batch");
    line.expect_end();
    while (lines_.looking_at("rows ")) parse_rows(transfer);
    plan_.transfers.push_back(std::move(transfer));
  }

  // "rows      value 0 in dim 0: 2 from 0 of device 0 to 0 of 1, ..."
  void parse_rows(Transfer& transfer) {
    TextLine& line = lines_.take("rows");
    line.expect("rows");
    line.expect("value");
    Transfer::Item& item = transfer.items[static_cast<size_t>(line.index(transfer.items.size()))];
    line.expect("in dim");
    item.batch_dim = line.small_integer();
    line.expect(":");
    while (!line.at_end()) {
      if (!item.rows.empty()) line.expect(",");
      Transfer::Rows rows;
      rows.count = line.integer();
      line.expect("from");
      rows.first = line.integer();
      line.expect("of device");
      rows.from = line.small_integer();
      line.expect("to");
      rows.place = line.integer();
      line.expect("of");
      rows.to = line.small_integer();
      item.rows.push_back(rows);
    }
  }

  // How many there are is known once all programs are read.
  int role_number(TextLine& line) {
    const TextLine begin = line;
    const int role = line.index(kMostDevices);
    named_roles_.emplace_back(role, begin);
    return role;
  }

  // "program 1  3 roles, each 1 device, arena 64 B"
  void parse_program_lines(size_t index) {
    TextLine& line = lines_.take(concat("'program ", index, "'"));
    line.expect(concat("program ", index));
    int devices = devices_;
    int roles = 1;
    if (programs_ > 1 || !line.at_end()) {
      devices = line.index(kMostDevices + 1);
      if (line.take("roles, each")) {
        roles = std::exchange(devices, line.index(kMostDevices + 1));
        if (roles < 2) line.fail(concat(roles, " roles share a program"));
      }
      if (!line.take("devices")) line.expect("device");
      line.expect(", arena");
      skip_bytes(line);
    } else if (devices < 0 || devices > static_cast<int>(kMostDevices)) {
      line.fail(concat("a program of ", devices, " devices"));
    }
    line.expect_end();
    // Its mesh follows from the stages and devices of all programs: check_same() looks at it.
    if (lines_.looking_at("mesh ")) lines_.take("").until("\n");
    const int stage = usual_stage(plan_, static_cast<int>(index));
    plan_.programs.push_back(parse_program(lines_, {stage, plan_.transfers.size(), length_}));
    plan_.programs.back().devices = devices;
    plan_.programs.back().roles = roles;
  }

  void parse_tied(TextLine& line) {
    line.expect("tied");
    std::vector<Plan::TiedGradient> gradients;
    while (!line.at_end()) {
      if (!gradients.empty()) line.expect(",");
      line.expect("gradient");
      const int gradient = line.small_integer();
      line.expect("of role");
      const int role = line.index(plan_.roles());
      const size_t count = plan_.program_of(static_cast<size_t>(role)).gradients.size();
      if (gradient < 0 || static_cast<size_t>(gradient) >= count) {
        line.fail(concat("gradient ", gradient, " of ", count));
      }
      gradients.push_back({role, gradient});
    }
    plan_.tied.push_back(std::move(gradients));
  }

  TextLines lines_;
  const size_t length_;  // nothing in the text is more numerous than its letters
  size_t programs_ = 0;
  int devices_ = 1;
  std::vector<std::pair<int, TextLine>> named_roles_;
  Plan plan_;
};

// With one blank where there are several.
std::string without_blanks(TextLine& line) {
  std::istringstream words(line.until("\n"));
  std::string text;
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string printed_again(const Plan& plan) {
  try {
    return print_plan(plan);
  } catch (const InternalError& error) {
    throw Error(concat("cannot read the plan: ", error.what()));
  }
}

// Whatever follows from the rest stands in the text as well: it must not say anything else.
void check_same(const std::string& text, const Plan& plan) {
  TextLines read("plan", text);
  TextLines made("plan", printed_again(plan));
  while (!made.at_end()) {
    const std::string expected = without_blanks(made.take(""));
    TextLine& line = read.take("'" + expected + "'");
    const TextLine begin = line;
    if (without_blanks(line) != expected) begin.fail("expected '" + expected + "'");
  }
  if (!read.at_end()) read.take("").fail("expected the end of the plan");
}

}  // namespace

std::string parse_words(TextLine& line, const std::string& mark) {
  return line.looking_at("\"") ? line.string() : line.until(mark);
}

void skip_bytes(TextLine& line) {
  line.number();
  for (const char* unit : {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (line.take(unit)) return;
  }
  line.fail("expected a number of bytes");
}

std::vector<int> parse_numbers(TextLine& line) {
  std::vector<int> numbers;
  if (line.at_end()) return numbers;
  do {
    numbers.push_back(line.small_integer());
  } while (line.take(","));
  return numbers;
}

Plan parse_plan(const std::string& text) {
  Plan plan = PlanParser(text).parse();
  check_same(text, plan);
  return plan;
}

}  // namespace epl
