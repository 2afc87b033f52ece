#include <ATen/Functions.h>

#include <set>

#include "base/text.h"
#include "base/text_line.h"
#include "ir/text.h"
#include "layout/constant_text.h"
#include "layout/operator_text.h"
#include "layout/shard.h"

namespace epl {
namespace {

constexpr int64_t kMostValues = 100'000'000;  // the table of values is as long as its largest name

class GraphParser {
 public:
  Graph parse(const std::string& text) {
    for (TextLine& line : lines_of("graph", text)) {
      if (line.take("graph")) {
      } else if (line.take("taskgraph")) {
        parse_taskgraph(line);
      } else if (line.take("return")) {
        parse_return(line);
      } else {
        parse_statement(line);
      }
      line.expect_end();
    }
    return std::move(graph_);
  }

 private:
  void parse_taskgraph(TextLine& line) {
    if (line.integer() != static_cast<int64_t>(graph_.taskgraphs.size())) {
      line.fail(concat("expected TaskGraph ", graph_.taskgraphs.size()));
    }
    const bool replicates = line.take("replicate");
    if (!replicates) line.expect("split");
    line.expect("(");
    Strategy strategy;
    strategy.kind = replicates ? Strategy::Kind::kReplicate : Strategy::Kind::kSplit;
    strategy.device_count = line.small_integer();
    line.expect(",");
    strategy.name = line.string();
    line.expect(")");
    graph_.taskgraphs.push_back(strategy);
  }

  ValueId parse_use(TextLine& line) {
    if (line.take("_")) return kNoValue;
    line.expect("%");
    const auto written = line.integer();
    if (defined_.count(written) == 0) line.fail(concat("%", written, " is not defined"));
    return static_cast<ValueId>(written);
  }

  ValueId parse_definition(TextLine& line) {
    if (line.take("_")) return kNoValue;
    line.expect("%");
    const int64_t written = line.integer();
    if (written < 0 || written > kMostValues) {
      line.fail(concat("%", written, " is no name of a value"));
    }
    line.expect(":");
    TensorType type = parse_type(line);
    const ValueId storage = line.take("@") ? parse_use(line) : kNoValue;
    if (storage != kNoValue && graph_.value(storage).storage != storage) {
      line.fail(concat("%", storage, " lies in the storage of %", graph_.value(storage).storage));
    }
    if (!defined_.insert(written).second) line.fail(concat("%", written, " is defined twice"));
    const auto id = static_cast<ValueId>(written);
    graph_.define_value(id, std::move(type), storage);
    return id;
  }

  std::vector<Result> parse_results(TextLine& line) {
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

  void parse_statement(TextLine& line) {
    std::vector<Result> results = parse_results(line);
    line.expect("=");
    const std::string word = line.word();
    if (word.find("::") == std::string::npos) {
      parse_leaf(line, word, results);
    } else {
      parse_node(line, word, std::move(results));
    }
  }

  void parse_leaf(TextLine& line, const std::string& kind, const std::vector<Result>& results) {
    if (results.size() != 1 || results[0].is_list || results[0].values.size() != 1 ||
        results[0].values[0] == kNoValue) {
      line.fail("a leaf is one value");
    }
    Leaf leaf;
    leaf.value = results[0].values[0];
    leaf.kind = leaf_kind(line, kind);
    const bool has_name = leaf.kind != Leaf::Kind::kInput && leaf.kind != Leaf::Kind::kSeed;
    if (leaf.kind == Leaf::Kind::kInput) leaf.index = line.small_integer();
    if (has_name) leaf.name = line.string();
    if (leaf.kind == Leaf::Kind::kConstant) parse_content(line, leaf);
    leaf.shard = parse_shard(line);
    if (line.take("index")) leaf.index = line.small_integer();
    if (line.take("named")) leaf.name = line.string();
    graph_.leaves.push_back(std::move(leaf));
  }

  static Leaf::Kind leaf_kind(const TextLine& line, const std::string& word) {
    if (word == "input") return Leaf::Kind::kInput;
    if (word == "seed") return Leaf::Kind::kSeed;
    if (word == "parameter") return Leaf::Kind::kParameter;
    if (word == "state") return Leaf::Kind::kState;
    if (word != "constant") line.fail("unknown leaf " + word);
    return Leaf::Kind::kConstant;
  }

  // A constant of one element has its number in the text.
  void parse_content(TextLine& line, Leaf& leaf) const {
    if (line.at_end() || line.looking_at("[") || line.looking_at("index")) return;
    const c10::IValue content = parse_constant(line, nullptr);
    if (!content.isScalar()) line.fail("a constant is one number");
    const TensorType& type = graph_.value(leaf.value).type;
    leaf.tensor = at::full(type.sizes, content.toScalar(), type.dtype);
    if (line.take("number")) {
      if (leaf.tensor.dim() != 0) line.fail("a number has no dimensions");
      leaf.tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  }

  void parse_node(TextLine& line, const std::string& name, std::vector<Result> results) {
    const c10::OperatorHandle op = find_operator(line, name);
    Node node{op, {}, std::move(results), Phase::kForward, -1, {}};
    if (op.schema().returns().empty()) node.results.clear();
    line.expect("(");
    for (const auto& argument : op.schema().arguments()) {
      // A text may be of a LibTorch whose operator has fewer arguments.
      if (!node.arguments.empty() && line.looking_at(")") && argument.default_value()) {
        node.arguments.emplace_back();
        node.arguments.back().constant = *argument.default_value();
        continue;
      }
      if (!node.arguments.empty()) line.expect(",");
      node.arguments.push_back(parse_argument(line, form_of(argument)));
    }
    line.expect(")");
    line.expect("{");
    if (line.take("backward")) {
      node.phase = Phase::kBackward;
    } else {
      line.expect("forward");
    }
    const bool is_last = line.looking_at("}") || line.looking_at("chunk");
    if (!is_last) node.taskgraph = line.small_integer();
    if (line.take("chunk")) node.chunk = line.small_integer();
    line.expect("}");
    if (line.take("expects")) node.expects = parse_constant(line, nullptr);
    graph_.nodes.push_back(std::move(node));
  }

  Argument parse_argument(TextLine& line, const ArgumentForm& form) {
    Argument argument;
    if (line.looking_at("%") || line.looking_at("_")) {
      argument.kind = Argument::Kind::kValue;
      argument.values = {parse_use(line)};
    } else if (form.is_tensor_list && line.take("[")) {
      argument.kind = Argument::Kind::kList;
      while (!line.take("]")) {
        if (!argument.values.empty()) line.expect(",");
        argument.values.push_back(parse_use(line));
      }
    } else {
      argument.constant = parse_constant(line, form.element);
    }
    return argument;
  }

  void parse_return(TextLine& line) {
    do {
      if (line.take("loss")) {
        graph_.loss = parse_use(line);
      } else if (line.take("metric")) {
        Metric metric;
        metric.collection = line.word_or_string();
        metric.name = line.string();
        metric.value = parse_use(line);
        graph_.metrics.push_back(metric);
      } else {
        line.expect("gradient");
        parse_gradient(line);
      }
    } while (line.take(","));
  }

  void parse_gradient(TextLine& line) {
    const int parameter = parse_parameter(line);
    graph_.gradients.push_back({parameter, parse_use(line)});
  }

  int parse_parameter(TextLine& line) const {
    if (line.take("leaf")) return line.index(graph_.leaves.size());
    const std::string name = line.string();
    const int found = parameter_named(graph_, name);
    if (found < 0) line.fail("no parameter is named \"" + name + "\"");
    return found;
  }

  Graph graph_;
  std::set<int64_t> defined_;
};

}  // namespace

Graph parse_graph(const std::string& text) { return GraphParser().parse(text); }

}  // namespace epl
