// A compiled step against the step itself: loss, metrics and gradients of one micro batch.
#include "compile/compile.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "base/text.h"
#include "ir/text.h"
#include "program/text.h"
#include "runtime/device_memory.h"
#include "runtime/executor.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

using models::ModelStep;
using Named = std::map<std::string, torch::Tensor>;

Batch copies(const Batch& batch) {
  Batch result;
  for (const auto& tensor : batch) result.push_back(tensor.clone());
  return result;
}

// Leaves the buffers of the model as they were.
Named run_plain(const ModelStep& model) {
  torch::manual_seed(5);
  const Batch buffers = copies(model.net->buffers());
  for (auto& parameter : model.net->parameters()) parameter.mutable_grad().reset();
  StepOutput output = model.step(copies(model.batch));
  output.loss.backward();
  Named result{{"loss", output.loss.detach().clone()}};
  for (const auto& [name, metric] : output.metrics) result["metric " + name] = metric.clone();
  for (const auto& parameter : model.net->named_parameters()) {
    const auto& gradient = parameter.value().grad();
    if (gradient.defined()) result["gradient " + parameter.key()] = gradient.to_dense();
  }
  for (size_t i = 0; i < buffers.size(); ++i) model.net->buffers()[i].copy_(buffers[i]);
  return result;
}

class Compiled {
 public:
  explicit Compiled(const ModelStep& model) : use_(memory_), arena_(torch::kCPU) {
    compiled_ = compile(model.capture(), Cluster(), Config());
    arena_.ensure(program().arena_bytes);
    std::vector<at::Tensor> leaves;
    for (const auto& leaf : graph().leaves) leaves.push_back(leaf.tensor);
    executor_ =
        std::make_unique<Executor>(program(), arena_, leaves, at::detail::getDefaultCPUGenerator());
  }

  Named run(const Batch& batch) {
    torch::manual_seed(5);
    executor_->load(batch);
    executor_->set_seed(1);
    executor_->run(0);
    const SegmentOutputs& outputs = program().outputs[0];
    Named result{{"loss", executor_->tensor(outputs.loss).clone()}};
    for (const auto& metric : outputs.metrics) {
      result["metric " + metric.name] = executor_->tensor(metric.slot).clone();
    }
    for (const auto& gradient : program().gradients) {
      const std::string& name = program().leaves[static_cast<size_t>(gradient.leaf)].name;
      result["gradient " + name] = executor_->tensor(gradient.slot).to_dense().clone();
    }
    return result;
  }

  const Graph& graph() const { return compiled_.graph; }
  const Plan& plan() const { return compiled_.plan; }
  const Program& program() const { return plan().programs[0]; }

 private:
  DeviceMemory memory_;
  DeviceMemory::Use use_;
  CompiledStep compiled_;
  Arena arena_;
  std::unique_ptr<Executor> executor_;
};

// The names of what differs.
std::string differences(const Named& plain, const Named& compiled) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : plain) {
    const auto found = compiled.find(name);
    if (found == compiled.end()) {
      names.push_back(name + " is missing");
    } else if (found->second.dtype() != tensor.dtype() || found->second.sizes() != tensor.sizes()) {
      names.push_back(name + " is of another type");
    } else if (!torch::allclose(found->second, tensor, 1e-5, 1e-6, /*equal_nan=*/true)) {
      names.push_back(name);
    }
  }
  if (compiled.size() > plain.size()) names.emplace_back("more than the step gives");
  return join(names, ", ");
}

// --- random programs of views and in-place operators
// ----------------------------------------------

// Draws a program over tensors that share memory in many ways. The same seed gives the same
// program.
class InPlaceProgram {
 public:
  explicit InPlaceProgram(unsigned seed) : seed_(seed) {}

  // All tensors that the program made, as they are at its end.
  std::vector<torch::Tensor> run(const torch::Tensor& input) {
    random_.seed(seed_);
    text_.clear();
    tensors_ = {input, input * 2, torch::zeros({4, 6})};
    for (int i = 0; i < 24; ++i) {
      switch (draw(3)) {
        case 0:
          make_view();
          break;
        case 1:
          write();
          break;
        default:
          compute();
      }
    }
    return std::exchange(tensors_, {});  // what a step keeps, it must return
  }

  const std::string& text() const { return text_; }

 private:
  int64_t draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  size_t pick() { return static_cast<size_t>(draw(static_cast<int64_t>(tensors_.size()))); }

  void note(const std::string& what, size_t from) { text_ += concat(what, "(t", from, ")\n"); }

  void keep(const std::string& what, size_t from, const torch::Tensor& made) {
    text_ += concat("t", tensors_.size(), " = ");
    note(what, from);
    tensors_.push_back(made);
  }

  void make_view() {
    const size_t from = pick();
    const torch::Tensor x = tensors_[from];
    if (x.dim() == 0) return;
    const int64_t dim = draw(x.dim());
    const int64_t size = x.size(dim);
    switch (draw(8)) {
      case 0:
        return keep("transpose", from, x.transpose(0, dim));
      case 1:
        return size == 0 ? void() : keep(concat("select ", dim), from, x.select(dim, draw(size)));
      case 2: {
        const int64_t begin = draw(size + 1);
        return keep(concat("slice ", dim, " from ", begin), from,
                    x.slice(dim, begin, begin + draw(size - begin + 1)));
      }
      case 3:
        return keep(concat("every second of ", dim), from, x.slice(dim, 0, size, 2));
      case 4:
        return keep("unsqueeze", from, x.unsqueeze(dim));
      case 5:
        return size == 0 ? void() : keep(concat("chunk ", dim), from, x.chunk(2, dim).back());
      case 6:
        return keep("flatten", from, x.flatten());  // a view or a copy
      default:
        return x.dim() < 2 ? void() : keep("diagonal", from, x.diagonal());
    }
  }

  // Something of the shape of x that is x itself, a copy of what shares memory with it, or apart.
  torch::Tensor other_for(const torch::Tensor& x) {
    const torch::Tensor& other = tensors_[pick()];
    if (other.sizes() != x.sizes()) return x;
    const bool shares = other.storage().data() == x.storage().data();
    return shares ? other.clone() : other;
  }

  void write() {
    const size_t target = pick();
    torch::Tensor x = tensors_[target];
    switch (draw(10)) {
      case 0:
        note("mul_", target);
        return void(x.mul_(0.5));
      case 1:
        note("add_ other", target);
        return void(x.add_(other_for(x), 0.25));
      case 2:
        note("relu_", target);
        return void(x.relu_());
      case 3:
        note("copy_ other", target);
        return void(x.copy_(other_for(x)));
      case 4:
        note("zero_", target);
        return void(x.zero_());
      case 5:
        note("masked_fill_", target);
        return void(x.masked_fill_(other_for(x) > 0.1, -1.5));
      case 6:
        note("normal_", target);
        return void(x.normal_());
      case 7: {
        note("mul_out", target);
        const torch::Tensor other = other_for(x);
        return void(torch::mul_out(x, other, other));
      }
      case 8:
        if (draw(8) != 0) return;  // rarely: it leaves all of its storage in place
        note("lt_", target);
        return void(x.lt_(0.2));
      default:
        note("fill_ from a number", target);
        return x.numel() == 0 ? void() : void(x.fill_(x.flatten()[0].clone()));
    }
  }

  void compute() {
    const size_t from = pick();
    const torch::Tensor x = tensors_[from];
    switch (draw(4)) {
      case 0:
        return keep("sigmoid", from, torch::sigmoid(x));
      case 1:
        return keep("sub", from, x - 0.5);
      case 2:
        return keep("clone", from, x.clone());
      default:
        return keep("where", from, torch::where(x > 0, other_for(x), x));
    }
  }

  const unsigned seed_;
  std::mt19937 random_;
  std::vector<torch::Tensor> tensors_;
  std::string text_;
};

struct Weight : torch::nn::Module {
  Weight() { weight = register_parameter("weight", torch::rand({4, 6})); }
  torch::Tensor weight;
};

ModelStep in_place_step(std::shared_ptr<InPlaceProgram> program) {
  auto net = std::make_shared<Weight>();
  return {"in place",
          net,
          [=](const Batch& batch) {
            StepOutput output(torch::Tensor{});
            output.loss = (net->weight * net->weight).sum();
            const torch::NoGradGuard no_grad;
            const auto made = program->run(batch[0]);
            for (size_t i = 0; i < made.size(); ++i) output.metrics[concat("t", i)] = made[i];
            return output;
          },
          {torch::randn({4, 6})}};
}

TEST(Compile, GivesWhatThePlainStepGives) {
  for (const auto& model : models::all_steps()) {
    SCOPED_TRACE(model.name);
    Compiled compiled(model);
    const Named plain = run_plain(model);
    EXPECT_EQ(differences(plain, compiled.run(model.batch)), "");
  }
}

// A step over one parameter of 4 x 6 and an input of the same shape.
using Body = std::function<StepOutput(const torch::Tensor& weight, const torch::Tensor& input)>;

std::string differences_of(const Body& body) {
  torch::manual_seed(1);
  auto net = std::make_shared<Weight>();
  const ModelStep model{"",
                        net,
                        [=](const Batch& batch) { return body(net->weight, batch[0]); },
                        {torch::randn({4, 6})}};
  Compiled compiled(model);
  const Named plain = run_plain(model);
  const std::string first = differences(plain, compiled.run(model.batch));
  return first.empty() ? differences(plain, compiled.run(model.batch)) : "first run: " + first;
}

TEST(Compile, KnowsConjugates) {
  EXPECT_EQ(
      differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
        auto z = torch::complex(weight, input);
        auto conjugate = z.conj();
        auto product = z * conjugate + torch::imag(conjugate) * 2;
        return StepOutput(torch::real(product).sum(), {{"z", torch::real(conjugate * conjugate)}});
      }),
      "");
}

TEST(Compile, KnowsOutArgumentsThatGrow) {
  EXPECT_EQ(differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
              auto grown = torch::empty({0});
              torch::mul_out(grown, input, input);
              torch::add_out(grown, grown, input);
              return StepOutput((weight * grown).sum(), {{"grown", grown}});
            }),
            "");
}

TEST(Compile, KnowsTensorsThatAreResized) {
  EXPECT_EQ(differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
              auto copy = input * 2;
              copy.resize_({2, 6});
              copy.add_(1);
              return StepOutput((weight.slice(0, 0, 2) * copy).sum(), {{"copy", copy}});
            }),
            "");
}

TEST(Compile, KnowsTensorsThatAreTransposedInPlace) {
  EXPECT_EQ(differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
              auto copy = input * 2;
              copy.t_();
              copy.lt_(0.5);  // stays in place, and all of the storage with it
              copy.unsqueeze_(0);
              return StepOutput((weight.t() * copy).sum(), {{"copy", copy}});
            }),
            "");
}

TEST(Compile, KnowsTensorsThatAreSetToOthers) {
  EXPECT_EQ(differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
              auto copy = input * 2;
              auto other = input * 3;
              copy.set_(other);
              other.add_(1);
              return StepOutput((weight * copy).sum(), {{"copy", copy}});
            }),
            "");
}

TEST(Compile, KnowsTensorsThatAreSeenAsAnotherType) {
  EXPECT_EQ(differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
              auto z = torch::complex(input, input * 2);
              auto parts = torch::view_as_real(z);
              z.mul_(z);
              auto bits = input.clone();
              auto integers = bits.view(torch::kInt);
              bits.mul_(3);
              return StepOutput((weight * parts.sum(-1)).sum(), {{"bits", integers + 0}});
            }),
            "");
}

TEST(Compile, KnowsAsStrided) {
  EXPECT_EQ(differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
              auto x = input * 2;
              auto row = x[1];
              row.mul_(3);
              auto around = row.as_strided({3, 2}, {6, 1}, 0);  // beyond the row
              auto next = row.as_strided({6}, {1}, 12);
              next.add_(1);
              return StepOutput((weight * x).sum() + around.sum(), {{"around", around}});
            }),
            "");
}

TEST(Compile, KnowsPromotion) {
  EXPECT_EQ(differences_of([](const torch::Tensor& weight, const torch::Tensor& input) {
              auto half = input.to(torch::kHalf);
              half.add_(input);
              half.mul_(torch::tensor(1.7, torch::kDouble));
              auto single = input.sum();
              single.add_(torch::tensor(0.1, torch::kDouble));
              auto mask = input.clone();
              mask.gt_(0).logical_not_();
              return StepOutput((weight * half * mask).sum() * single,
                                {{"half", half}, {"single", single}, {"mask", mask}});
            }),
            "");
}

TEST(Compile, GivesTheSameAgainInTheNextRun) {
  for (const auto& model : {models::lstm_step(), models::gpt_step(), models::sparse_step()}) {
    SCOPED_TRACE(model.name);
    Compiled compiled(model);
    const Named first = compiled.run(model.batch);
    EXPECT_EQ(differences(first, compiled.run(model.batch)), "");
  }
}

TEST(Compile, KeepsTheMeaningOfInPlacePrograms) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    torch::manual_seed(seed);
    auto program = std::make_shared<InPlaceProgram>(seed);
    const ModelStep model = in_place_step(program);
    const Named plain = run_plain(model);
    Compiled compiled(model);
    const std::string differs = differences(plain, compiled.run(model.batch));
    ASSERT_EQ(differs, "") << "seed " << seed << "\n"
                           << program->text() << print_graph(model.capture())
                           << print_graph(compiled.graph());
  }
}

}  // namespace
}  // namespace epl
