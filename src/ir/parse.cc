#include <ATen/Functions.h>
#include <ATen/core/jit_type.h>

#include <cctype>
#include <cstdlib>
#include <set>

#include "base/check.h"
#include "ir/text.h"
#include "layout/dtype_names.h"

namespace epl {
namespace {

constexpr int64_t kMostValues = 100'000'000;  // the table of values is as long as its largest name

// Reads one line from left to right; every complaint names the line.
class Line {
 public:
  Line(std::string text, int number) : text_(std::move(text)), number_(number) { skip_space(); }

  bool at_end() const { return next_ >= text_.size(); }
  bool looking_at(const std::string& token) const {
    return text_.compare(next_, token.size(), token) == 0;
  }
  bool take(const std::string& token) {
    if (!looking_at(token)) return false;
    next_ += token.size();
    skip_space();
    return true;
  }
  void expect(const std::string& token) {
    if (!take(token)) fail("expected '" + token + "'");
  }
  std::string word() {  // letters, digits, _ : .
    const size_t begin = next_;
    while (next_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[next_])) != 0 ||
                                    std::string("_:.").find(text_[next_]) != std::string::npos)) {
      ++next_;
    }
    if (begin == next_) fail("expected a word");
    const std::string result = text_.substr(begin, next_ - begin);
    skip_space();
    return result;
  }
  std::string string() {
    if (at_end() || text_[next_] != '"') fail("expected a string");
    std::string result;
    for (++next_; next_ < text_.size() && text_[next_] != '"'; ++next_) {
      const bool escaped = text_[next_] == '\\' && next_ + 1 < text_.size();
      if (escaped) ++next_;
      result += escaped && text_[next_] == 'n' ? '\n' : text_[next_];
    }
    if (at_end()) fail("a string without an end");
    ++next_;
    skip_space();
    return result;
  }
  int64_t integer() {
    const c10::IValue value = number();
    if (!value.isInt()) fail("expected an integer");
    return value.toInt();
  }
  c10::IValue number() {
    const char* begin = text_.c_str() + next_;
    char* end = nullptr;
    const double value = std::strtod(begin, &end);
    if (end == begin) fail("expected a number");
    const std::string token(begin, static_cast<size_t>(end - begin));
    next_ += token.size();
    skip_space();
    if (token.find_first_of(".enai") != std::string::npos) return value;
    return static_cast<int64_t>(std::strtoll(token.c_str(), nullptr, 10));
  }
  std::vector<int64_t> integers(const std::string& open, const std::string& close) {
    std::vector<int64_t> result;
    expect(open);
    while (!take(close)) {
      if (!result.empty()) expect(",");
      result.push_back(integer());
    }
    return result;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(concat("cannot read the graph: ", why, " at column ", next_ + 1, " of line ",
                       number_, ": ", text_));
  }

 private:
  void skip_space() {
    while (next_ < text_.size() && text_[next_] == ' ') ++next_;
  }

  std::string text_;
  int number_;
  size_t next_ = 0;
};

class GraphParser {
 public:
  explicit GraphParser(const std::string& text) : in_(text) {}

  Graph parse() {
    std::string text;
    for (int number = 1; std::getline(in_, text); ++number) {
      Line line(text, number);
      if (line.at_end() || line.take("graph")) {
      } else if (line.take("taskgraph")) {
        parse_taskgraph(line);
      } else if (line.take("return")) {
        parse_return(line);
      } else {
        parse_statement(line);
      }
      if (!line.at_end()) line.fail("expected the end of the line");
    }
    return std::move(graph_);
  }

 private:
  void parse_taskgraph(Line& line) {
    if (line.integer() != static_cast<int64_t>(graph_.taskgraphs.size())) {
      line.fail(concat("expected TaskGraph ", graph_.taskgraphs.size()));
    }
    const bool replicates = line.take("replicate");
    if (!replicates) line.expect("split");
    line.expect("(");
    Strategy strategy;
    strategy.kind = replicates ? Strategy::Kind::kReplicate : Strategy::Kind::kSplit;
    strategy.device_count = static_cast<int>(line.integer());
    line.expect(",");
    strategy.name = line.string();
    line.expect(")");
    graph_.taskgraphs.push_back(strategy);
  }

  ValueId parse_use(Line& line) {
    if (line.take("_")) return kNoValue;
    line.expect("%");
    const auto written = line.integer();
    if (defined_.count(written) == 0) line.fail(concat("%", written, " is not defined"));
    return static_cast<ValueId>(written);
  }

  ValueId parse_definition(Line& line) {
    if (line.take("_")) return kNoValue;
    line.expect("%");
    const int64_t written = line.integer();
    if (written < 0 || written > kMostValues) {
      line.fail(concat("%", written, " is no name of a value"));
    }
    line.expect(":");
    TensorType type;
    if (line.take("sparse")) type.layout = c10::kSparse;
    const std::string dtype_text = line.word();
    const auto dtype = dtype_from_name(dtype_text);
    if (!dtype) line.fail("unknown element type '" + dtype_text + "'");
    type.dtype = *dtype;
    type.sizes = line.integers("[", "]");
    if (type.layout == c10::kStrided) {
      type.strides =
          line.looking_at("{") ? line.integers("{", "}") : contiguous_strides(type.sizes);
      if (type.strides.size() != type.sizes.size()) {
        line.fail(concat(type.strides.size(), " strides for ", type.sizes.size(), " sizes"));
      }
    }
    if (line.take("+")) type.offset = line.integer();
    const ValueId storage = line.take("@") ? parse_use(line) : kNoValue;
    if (storage != kNoValue && graph_.value(storage).storage != storage) {
      line.fail(concat("%", storage, " lies in the storage of %", graph_.value(storage).storage));
    }
    if (!defined_.insert(written).second) line.fail(concat("%", written, " is defined twice"));
    const auto id = static_cast<ValueId>(written);
    graph_.define_value(id, type, storage);
    return id;
  }

  std::vector<Result> parse_results(Line& line) {
    std::vector<Result> results;
    do {
      Result result;
      if (line.take("()")) {
      } else if (line.take("[")) {
        result.is_list = true;
        while (!line.take("]")) {
          if (!result.values.empty()) line.expect(",");
          result.values.push_back(parse_definition(line));
        }
      } else {
        result.values.push_back(parse_definition(line));
      }
      results.push_back(result);
    } while (line.take(","));
    return results;
  }

  void parse_statement(Line& line) {
    std::vector<Result> results = parse_results(line);
    line.expect("=");
    const std::string word = line.word();
    if (word.find("::") == std::string::npos) {
      parse_leaf(line, word, results);
    } else {
      parse_node(line, word, std::move(results));
    }
  }

  void parse_leaf(Line& line, const std::string& kind, const std::vector<Result>& results) {
    if (results.size() != 1 || results[0].is_list || results[0].values.size() != 1 ||
        results[0].values[0] == kNoValue) {
      line.fail("a leaf is one value");
    }
    Leaf leaf;
    leaf.value = results[0].values[0];
    if (kind == "input") {
      leaf.kind = Leaf::Kind::kInput;
      leaf.index = static_cast<int>(line.integer());
    } else if (kind == "seed") {
      leaf.kind = Leaf::Kind::kSeed;
    } else {
      leaf.kind = kind == "parameter" ? Leaf::Kind::kParameter
                  : kind == "state"   ? Leaf::Kind::kState
                                      : Leaf::Kind::kConstant;
      if (leaf.kind == Leaf::Kind::kConstant && kind != "constant")
        line.fail("unknown leaf " + kind);
      leaf.name = line.string();
    }
    if (leaf.kind == Leaf::Kind::kConstant && !line.at_end()) {
      const c10::IValue content = parse_constant(line, nullptr);
      if (!content.isScalar()) line.fail("a constant is one number");
      const TensorType& type = graph_.value(leaf.value).type;
      leaf.tensor = at::full(type.sizes, content.toScalar(), type.dtype);
      if (line.take("number")) leaf.tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    graph_.leaves.push_back(std::move(leaf));
  }

  void parse_node(Line& line, const std::string& name, std::vector<Result> results) {
    const size_t dot = name.find('.', name.find("::") + 2);
    const c10::OperatorName key =
        dot == std::string::npos ? c10::OperatorName(name, "")
                                 : c10::OperatorName(name.substr(0, dot), name.substr(dot + 1));
    const auto op = c10::Dispatcher::singleton().findSchema(key);
    if (!op) line.fail("LibTorch has no operator " + name);
    Node node{*op, {}, std::move(results), Phase::kForward, -1, {}};
    if (op->schema().returns().empty()) node.results.clear();
    line.expect("(");
    for (const auto& argument : op->schema().arguments()) {
      // A text may be of a LibTorch whose operator has fewer arguments.
      if (!node.arguments.empty() && line.looking_at(")") && argument.default_value()) {
        node.arguments.emplace_back();
        node.arguments.back().constant = *argument.default_value();
        continue;
      }
      if (!node.arguments.empty()) line.expect(",");
      node.arguments.push_back(parse_argument(line, argument.type()));
    }
    line.expect(")");
    line.expect("{");
    if (line.take("backward")) {
      node.phase = Phase::kBackward;
    } else {
      line.expect("forward");
    }
    if (!line.looking_at("}")) node.taskgraph = static_cast<int>(line.integer());
    line.expect("}");
    if (line.take("expects")) node.expects = parse_constant(line, nullptr);
    graph_.nodes.push_back(std::move(node));
  }

  Argument parse_argument(Line& line, const c10::TypePtr& declared) {
    c10::TypePtr type = declared;
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    Argument argument;
    if (line.looking_at("%") || line.looking_at("_")) {
      argument.kind = Argument::Kind::kValue;
      argument.values = {parse_use(line)};
      return argument;
    }
    const auto list = type->cast<c10::ListType>();
    const bool of_tensors = list && (list->getElementType()->kind() == c10::TypeKind::TensorType ||
                                     list->getElementType()->kind() == c10::TypeKind::OptionalType);
    if (of_tensors && line.take("[")) {
      argument.kind = Argument::Kind::kList;
      while (!line.take("]")) {
        if (!argument.values.empty()) line.expect(",");
        argument.values.push_back(parse_use(line));
      }
      return argument;
    }
    argument.constant = parse_constant(line, list ? list->getElementType() : nullptr);
    return argument;
  }

  c10::IValue parse_constant(Line& line, const c10::TypePtr& element) {
    if (line.take("none") || line.take("generator")) return {};
    if (line.take("true")) return true;
    if (line.take("false")) return false;
    if (line.looking_at("\"")) return line.string();
    if (line.take("device(")) {
      const std::string name = line.string();
      line.expect(")");
      try {
        return c10::Device(name);
      } catch (const c10::Error&) {
        line.fail("unknown device '" + name + "'");
      }
    }
    if (line.take("complex(")) {
      const double real = line.number().toScalar().toDouble();
      line.expect(",");
      const double imaginary = line.number().toScalar().toDouble();
      line.expect(")");
      return c10::complex<double>(real, imaginary);
    }
    if (!line.take("[")) return line.number();
    std::vector<c10::IValue> items;
    while (!line.take("]")) {
      if (!items.empty()) line.expect(",");
      items.push_back(parse_constant(line, nullptr));
    }
    return make_list(items, element);
  }

  static c10::IValue make_list(const std::vector<c10::IValue>& items, const c10::TypePtr& element) {
    const auto kind = element ? element->kind() : c10::TypeKind::IntType;
    if (kind == c10::TypeKind::FloatType) {
      c10::List<double> list;
      for (const auto& item : items) list.push_back(item.toScalar().toDouble());
      return list;
    }
    if (kind == c10::TypeKind::BoolType) {
      c10::List<bool> list;
      for (const auto& item : items) list.push_back(item.toBool());
      return list;
    }
    if (kind == c10::TypeKind::IntType) {
      c10::List<int64_t> list;
      for (const auto& item : items) list.push_back(item.toInt());
      return list;
    }
    c10::impl::GenericList list(element);
    for (const auto& item : items) list.push_back(item);
    return list;
  }

  void parse_return(Line& line) {
    do {
      if (line.take("loss")) {
        graph_.loss = parse_use(line);
      } else if (line.take("metric")) {
        Metric metric;
        metric.collection = line.word();
        metric.name = line.string();
        metric.value = parse_use(line);
        graph_.metrics.push_back(metric);
      } else {
        line.expect("gradient");
        parse_gradient(line);
      }
    } while (line.take(","));
  }

  void parse_gradient(Line& line) {
    const std::string name = line.string();
    for (size_t i = 0; i < graph_.leaves.size(); ++i) {
      const Leaf& leaf = graph_.leaves[i];
      if (leaf.kind != Leaf::Kind::kParameter || leaf.name != name) continue;
      graph_.gradients.push_back({static_cast<int>(i), parse_use(line)});
      return;
    }
    line.fail("no parameter is named \"" + name + "\"");
  }

  std::istringstream in_;
  Graph graph_;
  std::set<int64_t> defined_;
};

}  // namespace

Graph parse_graph(const std::string& text) { return GraphParser(text).parse(); }

}  // namespace epl
