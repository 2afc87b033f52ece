// Rows through operators by their rules: a letter that holds rows goes on where the operator may be
// cut along it, and what is linear goes on with sums.
#include <ATen/core/Reduction.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "ops/facts.h"
#include "ops/rule_parts.h"
#include "sharding/row_node.h"

namespace epl {

int dim_of_rows(const RowNode& at, ValueId id) {
  const Sizes& sizes = sizes_of(at.graph, id);
  const auto found = std::find(sizes.begin(), sizes.end(), at.rows);
  return found == sizes.end() ? kNone : static_cast<int>(found - sizes.begin());
}

std::vector<RowKind> for_all_outputs(const RowNode& at, RowKind kind) {
  return std::vector<RowKind>(outputs_of(at.node).size(), kind);
}

namespace {

using Kinds = std::vector<RowKind>;

bool any(const Kinds& kinds, bool (RowKind::*is)() const) {
  return std::any_of(kinds.begin(), kinds.end(), [&](const RowKind& kind) { return (kind.*is)(); });
}

std::string name_of_sum(int power) {
  if (power == 0) return "a sum over the rows";
  return power == -1 ? "a mean over the rows" : "a sum over the rows that grows with their number";
}

class ByRule {
 public:
  explicit ByRule(const RowNode& at)
      : at_(at), name_(op_name(at.node)), rule_(find_rule(at.node.op)), ids_(inputs_of(at.node)) {}

  RowOutcome outcome() {
    for (const RowKind& kind : at_.inputs) {
      if (kind.kind == RowKind::Kind::kNumbers) {
        return std::string("reads the numbers of the rows, which start anew on each device");
      }
    }
    if (const auto number = scalar_of_sum()) {
      const auto guessed = guess(*number, name_ == "aten::div.Scalar");
      if (!guessed) return says_unclear(*number);
      scale_ = -*guessed;
    }
    if (any(at_.inputs, &RowKind::is_sum)) return of_sums();
    if (any(at_.inputs, &RowKind::is_rows)) return of_rows();
    return of_same();
  }

 private:
  // The number that a sum is multiplied with or divided by.
  std::optional<double> scalar_of_sum() const {
    const bool scales = name_ == "aten::mul.Scalar" || name_ == "aten::div.Scalar";
    if (!scales || !any(at_.inputs, &RowKind::is_sum)) return std::nullopt;
    return at_.node.arguments[1].constant.toScalar().toDouble();
  }

  // The power of the number of rows that is in a number which divides a sum, or multiplies it: 0
  // where it is one of the program's own. None: nobody knows. What a sum over rows is divided by is
  // their number, if nothing else is that many, or that of all its elements; twice that may as well
  // be the size of a whole batch.
  std::optional<int> guess(double number, bool divides) const {
    const auto rows = static_cast<double>(at_.rows);
    const double size = std::abs(number);
    if (rows < 2 || size == 0) return 0;
    const double count = size < 1 ? 1 / size : size;
    const auto is = [&](double other) { return std::abs(count - other) < 1e-6 * other; };
    if (count < rows * (1 - 1e-6) || std::abs(std::remainder(count, rows)) > 1e-6 * count) return 0;
    const RowKind& sum = *std::find_if(at_.inputs.begin(), at_.inputs.end(),
                                       [](const RowKind& kind) { return kind.is_sum(); });
    if (sum.power != 0) return is(rows) ? std::nullopt : std::optional(0);
    const bool shrinks = divides == (size >= 1);
    if (!shrinks) return 0;
    if (!divides) return std::nullopt;
    const bool of_rows = is(rows) && !sum.square;
    const bool of_elements = is(static_cast<double>(sum.terms)) && !is(rows * at_.parts);
    return of_rows || of_elements ? std::optional(1) : std::nullopt;
  }

  std::string says_unclear(double number) const {
    return concat("multiplies or divides a sum over the rows by ", number,
                  ", which may be made of their number (", at_.rows,
                  ") or be the same for any number of them");
  }

  // The number in a tensor that is one and that C++ made.
  std::optional<double> number_in(size_t input) const {
    const RowKind& kind = at_.inputs[input];
    if (!kind.is_same() || kind.power != 0) return std::nullopt;
    for (const auto& leaf : at_.graph.leaves) {
      const bool number = leaf.value == ids_[input] && leaf.kind == Leaf::Kind::kConstant &&
                          leaf.tensor.defined() && leaf.tensor.numel() == 1;
      if (number) return leaf.tensor.item().toDouble();
    }
    return std::nullopt;
  }

  // --- powers ----------------------------------------------------------------------------------

  // Of the result, from those of the inputs; none where they do not go together.
  std::optional<int> power() const {
    int first = at_.inputs.empty() ? 0 : at_.inputs[0].power;
    int sum = 0;
    bool all_zero = true;
    bool alike = true;
    for (size_t i = 0; i < at_.inputs.size(); ++i) {
      const int own = at_.inputs[i].power;
      sum += own;
      all_zero &= own == 0;
      alike &= own == first || at_.inputs[i].zero;
    }
    if (all_zero) return 0;
    if (name_ == "aten::div.Tensor") return first - (sum - first);
    if (name_ == "aten::reciprocal") return -first;
    if (rule_ == nullptr) return std::nullopt;
    switch (rule_->linear) {
      case Linear::kOneInput:
        return sum;
      case Linear::kAll:
        return alike ? std::optional(first) : std::nullopt;
      case Linear::kFirst:
        return sum == first ? std::optional(first) : std::nullopt;
      case Linear::kNo:
        return std::nullopt;
    }
    return std::nullopt;
  }

  static std::string powers_differ() {
    return "puts together what grows with the number of rows and what does not";
  }

  // --- nothing has rows ------------------------------------------------------------------------

  RowOutcome of_same() const {
    const auto made = power();
    if (!made) return powers_differ();
    return for_all_outputs(at_, RowKind::same(*made));
  }

  // --- rows ------------------------------------------------------------------------------------

  RowOutcome of_rows() {
    const auto pattern = pattern_of(at_.graph, at_.node);
    if (!pattern) {
      return std::string(rule_ == nullptr
                             ? "is an operator of which EPL does not know what it does "
                               "with rows"
                             : "looks at all rows");
    }
    const auto letter = letter_of_rows(*pattern);
    if (std::holds_alternative<std::string>(letter)) return std::get<std::string>(letter);
    return along(*pattern, std::get<char>(letter));
  }

  // The index that the rows are, and how they lie in it.
  std::variant<char, std::string> letter_of_rows(const Pattern& pattern) {
    char letter = 0;
    int64_t size = 0;
    outer_ = 0;
    for (size_t i = 0; i < ids_.size(); ++i) {
      const RowKind& kind = at_.inputs[i];
      if (!kind.is_rows()) continue;
      const auto dim = static_cast<size_t>(kind.dim);
      const char own = pattern.inputs[i][dim];
      const int64_t own_size = sizes_of(at_.graph, ids_[i])[dim];
      if (own == '1' || pattern.whole.find(own) != std::string::npos) {
        return std::string("looks at all rows");
      }
      if (letter != 0 && (own != letter || own_size != size)) {
        return std::string("puts each row together with other rows");
      }
      if (outer_ != 0 && kind.outer != 0 && kind.outer != outer_) {
        return std::string("puts rows together that lie in different orders");
      }
      letter = own;
      size = own_size;
      outer_ = std::max(outer_, kind.outer);
    }
    for (size_t i = 0; i < ids_.size(); ++i) {
      const bool has = pattern.inputs[i].find(letter) != std::string::npos;
      if (at_.inputs[i].is_same() && has) {
        return std::string("puts rows together with a tensor that is the same for other rows");
      }
    }
    return letter;
  }

  RowOutcome along(const Pattern& pattern, char letter) const {
    const bool expands = pattern.expanded.find(letter) != std::string::npos;
    const bool means = divides_by_count();
    if (expands && !means) return std::string("looks at all rows");
    const auto made = power();
    if (!made) return powers_differ();
    Kinds kinds;
    const auto outputs = outputs_of(at_.node);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t dim = pattern.outputs[i].find(letter);
      const bool same =
          i < pattern.same.size() && pattern.same[i].find(letter) != std::string::npos;
      if (dim != std::string::npos) {
        kinds.push_back(RowKind::rows(static_cast<int>(dim), outer_, *made));
      } else if (same || is_random(at_.node.op)) {
        return std::string("looks at all rows");
      } else {
        kinds.push_back(added_up(expands ? *made - 1 : *made));
      }
    }
    return kinds;
  }

  RowKind added_up(int power) const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (!at_.inputs[i].is_rows()) continue;
      const TensorType& type = at_.graph.value(ids_[i]).type;
      const auto like_rows = std::count(type.sizes.begin(), type.sizes.end(), at_.rows);
      const bool square = like_rows > 1 || type.numel() == at_.rows * at_.rows;
      return RowKind::sum(power, type.numel(), square);
    }
    return RowKind::sum(power);
  }

  // mean(), and losses with reduction "mean".
  bool divides_by_count() const {
    if (name_ == "aten::mean" || name_ == "aten::mean.dim") return true;
    const auto reduction = argument_named(at_.node, "reduction");
    const bool nll = name_.find("nll_loss") != std::string::npos;
    return reduction && !nll && int_at(at_.node, *reduction) == at::Reduction::Mean;
  }

  // --- sums ------------------------------------------------------------------------------------

  int power_of_sums() const {
    for (const RowKind& kind : at_.inputs) {
      if (kind.is_sum()) return kind.power;
    }
    return 0;
  }

  RowOutcome of_sums() const {
    const int power = power_of_sums();
    if (any(at_.inputs, &RowKind::is_rows)) {
      return "puts each row together with " + name_of_sum(power);
    }
    static const std::set<std::string> adds = {"aten::add.Scalar", "aten::sub.Scalar",
                                               "aten::rsub.Scalar"};
    if (adds.count(name_) != 0) {
      if (power == -1) return for_all_outputs(at_, RowKind::sum(-1));
      return "adds a number to " + name_of_sum(power) + ", which each device would do again";
    }
    const auto pattern = pattern_of(at_.graph, at_.node);
    const std::vector<size_t>* linear = pattern ? linear_set(*pattern) : nullptr;
    if (linear == nullptr || !keeps_numbers(*linear)) {
      return "is not linear, but reads " + name_of_sum(power);
    }
    return linear_outcome(*linear, power);
  }

  // Inputs that may be sums together, with all that are.
  const std::vector<size_t>* linear_set(const Pattern& pattern) const {
    for (const auto& set : *pattern.partial) {
      bool all = true;
      for (size_t i = 0; i < ids_.size(); ++i) {
        all &= !at_.inputs[i].is_sum() || std::count(set.begin(), set.end(), i) != 0;
      }
      if (all) return &set;
    }
    return nullptr;
  }

  // x * x is not linear in x; truth values and integers of fractions are no numbers to add up.
  bool keeps_numbers(const std::vector<size_t>& set) const {
    const auto integral = [&](ValueId id) {
      return c10::isIntegralType(at_.graph.value(id).type.dtype, /*includeBool=*/true);
    };
    bool all_integral = true;
    for (size_t i = 0; i < ids_.size(); ++i) {
      const bool inside = std::count(set.begin(), set.end(), i) != 0;
      if (inside) all_integral &= integral(ids_[i]);
      for (size_t sum : set) {
        if (!inside && ids_[sum] == ids_[i]) return false;
      }
    }
    for (ValueId id : outputs_of(at_.node)) {
      if (at_.graph.value(id).type.dtype == c10::ScalarType::Bool) return false;
      if (integral(id) && !all_integral) return false;
    }
    return true;
  }

  // What is the same for all rows is its own mean, but no sum.
  RowOutcome linear_outcome(const std::vector<size_t>& set, int power) const {
    int result = power + scale_;
    for (size_t i = 0; i < ids_.size(); ++i) {
      const RowKind& kind = at_.inputs[i];
      const bool inside = std::count(set.begin(), set.end(), i) != 0;
      if (!inside) {
        const auto number = number_in(i);
        const bool divides = name_ == "aten::div.Tensor";
        const auto guessed = number ? guess(*number, divides) : std::optional(kind.power);
        if (!guessed) return says_unclear(*number);
        const int own = *guessed;
        const bool scales = divides || rule_->linear == Linear::kOneInput;
        if (own != 0 && !scales) return powers_differ();
        result += divides ? -own : own;
      } else if (kind.is_sum() && kind.power != power) {
        return "adds " + name_of_sum(power) + " and " + name_of_sum(kind.power);
      } else if (kind.is_same() && !kind.zero && kind.power - 1 != power) {
        return "adds what is not of the rows to " + name_of_sum(power) +
               ", which each device would do again";
      }
    }
    const auto sum = std::find_if(at_.inputs.begin(), at_.inputs.end(),
                                  [](const RowKind& kind) { return kind.is_sum(); });
    return for_all_outputs(at_, RowKind::sum(result, sum->terms, sum->square));
  }

  const RowNode& at_;
  const std::string name_;
  const OperatorRow* const rule_;
  const std::vector<ValueId> ids_;
  int scale_ = 0;  // the power that is in a number which a sum is multiplied with
  int64_t outer_ = 1;
};

}  // namespace

RowOutcome rows_by_rule(const RowNode& at) { return ByRule(at).outcome(); }

}  // namespace epl
