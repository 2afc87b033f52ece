// A step that runs on shapes alone gives the Graph of the real run, and what needs contents is
// refused by name.
#include "capture/ghost.h"

#include <epl/epl.h>
#include <gtest/gtest.h>

#include "capture/amp_scope.h"
#include "capture/made_under_split.h"
#include "capture/test_capture.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

using torch::Tensor;

// Nothing is real but what has to be.
constexpr ShapeOptions kAllGhosts = {/*real_up_to=*/0};

using MakeSteps = std::function<std::vector<models::ModelStep>()>;

std::vector<std::string> texts_of(const std::vector<models::ModelStep>& steps) {
  std::vector<std::string> texts;
  for (const models::ModelStep& step : steps) {
    try {
      texts.push_back(step.name + "\n" + print_graph(step.capture()));
    } catch (const std::exception& error) {
      texts.push_back(step.name + "\n" + error.what());
    }
  }
  return texts;
}

// The first line that differs, with the one of the other text.
std::string difference(const std::string& real, const std::string& ghost) {
  std::istringstream a(real);
  std::istringstream b(ghost);
  std::string line_a;
  std::string line_b;
  while (std::getline(a, line_a) && std::getline(b, line_b)) {
    if (line_a != line_b) return concat("\n  real  ", line_a, "\n  ghost ", line_b);
  }
  return "";
}

void expect_same_graphs(const MakeSteps& make, const ShapeOptions& options) {
  const std::vector<std::string> real = texts_of(make());
  std::vector<std::string> ghosts;
  {
    const ShapesOnly shapes(options);
    ghosts = texts_of(make());
  }
  ASSERT_EQ(real.size(), ghosts.size());
  for (size_t i = 0; i < real.size(); ++i) {
    const std::string name = real[i].substr(0, real[i].find('\n'));
    EXPECT_TRUE(real[i] == ghosts[i]) << name << difference(real[i], ghosts[i]);
  }
  EXPECT_EQ(bytes_of_ghosts(), 0);
}

TEST(Ghosts, GraphReadsAsTheRealOne) {
  expect_same_graphs(models::all_steps, kAllGhosts);
  expect_same_graphs(models::example_steps, {/*real_up_to=*/512});  // a table that C++ fills
  expect_same_graphs(
      [] {
        torch::manual_seed(1);
        return std::vector<models::ModelStep>{models::layers_step()};
      },
      kAllGhosts);
}

TEST(Ghosts, GraphReadsAsTheRealOneWhereSmallTensorsAreReal) {
  expect_same_graphs(models::all_steps, ShapeOptions());
  expect_same_graphs(models::example_steps, ShapeOptions());
}

// Casts are nodes as in a real run, and kernels of half precision lay out what those of single
// precision do.
TEST(Ghosts, GraphReadsAsTheRealOneInMixedPrecision) {
  const auto mixed_steps = [] {
    std::vector<models::ModelStep> steps = models::all_steps();
    for (models::ModelStep& model : steps) {
      model.step = [step = model.step](const Batch& batch) {
        const AmpScope scope(at::kBFloat16);
        return step(batch);
      };
    }
    return steps;
  };
  expect_same_graphs(mixed_steps, kAllGhosts);
}

// Scopes in the step, and around what is made.
struct Annotated : torch::nn::Module {
  Annotated() : below(8, 8), above(8, 4) {
    {
      const With scope(split(2));
      experts = register_parameter("experts", torch::randn({2, 8, 8}));
    }
    register_module("below", below);
    register_module("above", above);
  }

  Tensor forward(const Tensor& x) {
    Tensor y;
    {
      const With scope(replicate(1, "first"));
      y = torch::relu(below(x));
    }
    y = torch::bmm(y.expand({2, -1, -1}), experts).sum(0);
    const With scope(split(2, "second"));
    return above(y);
  }

  torch::nn::Linear below, above;
  Tensor experts;
};

TEST(Ghosts, ScopesAreSeen) {
  const auto text_of = [] {
    torch::manual_seed(1);
    auto net = std::make_shared<Annotated>();
    const Graph graph =
        graph_of(*net, [net](const Batch& batch) { return net->forward(batch[0]).square().mean(); },
                 {torch::randn({6, 8})});
    std::string text = print_graph(graph);
    for (const auto& [leaf, scope] : leaves_under_split(graph)) {
      text += concat("leaf ", leaf, " made under ", scope.str(), "\n");
    }
    return text;
  };
  const std::string real = text_of();
  EXPECT_NE(real.find("made under"), std::string::npos);
  const ShapesOnly shapes(kAllGhosts);
  EXPECT_EQ(text_of(), real);
}

TEST(Ghosts, HaveWhatATensorIsAskedFor) {
  const ShapesOnly shapes(kAllGhosts);
  const Tensor ghost = torch::randn({1 << 20, 1 << 20}, torch::kHalf);
  EXPECT_TRUE(is_ghost(ghost));
  EXPECT_TRUE(ghost.device().is_cpu());
  EXPECT_EQ(ghost.nbytes(), size_t{1} << 41);
  EXPECT_EQ(bytes_of_ghosts(), int64_t{1} << 41);
  EXPECT_TRUE(ghost.t().is_alias_of(ghost));
  EXPECT_TRUE(is_ghost(ghost.narrow(0, 1, 2)));
  EXPECT_EQ((ghost.t() + 1).strides(), ghost.t().strides());
  EXPECT_EQ(ghost.reshape({-1}).data_ptr(), nullptr);
}

// No kernel is given a null pointer, whatever guard stands.
TEST(Ghosts, OutliveTheirGuard) {
  Tensor ghost;
  {
    const ShapesOnly shapes(kAllGhosts);
    ghost = torch::randn({1000, 1000});
  }
  const Tensor sum = (ghost + torch::ones({1000})).sum();
  EXPECT_TRUE(is_ghost(sum));
  EXPECT_THROW(sum.item<float>(), Error);
  Tensor real = torch::ones({1000, 1000});
  EXPECT_THROW(real.add_(ghost), Error);
  EXPECT_EQ(real.sum().item<float>(), 1e6);
  EXPECT_EQ(torch::ones({2}).sum().item<float>(), 2);
}

TEST(Ghosts, GiveRealTensorsTheirMemoryBack) {
  Tensor real = torch::arange(6.0);
  const Tensor view = real.view({2, 3});
  const void* const memory = real.data_ptr();
  {
    const ShapesOnly shapes(kAllGhosts);
    real.mul_(2);  // nothing is unknown yet
    EXPECT_FALSE(is_ghost(real));
    real.add_(torch::randn({6}));
    EXPECT_TRUE(is_ghost(real));
    EXPECT_TRUE(is_ghost(view));
    EXPECT_THROW(view.sum().item<double>(), Error);
  }
  EXPECT_EQ(real.data_ptr(), memory);
  EXPECT_FALSE(is_ghost(view));
  EXPECT_EQ(view.sum().item<double>(), 30);
}

TEST(Ghosts, SmallTensorsOfNoGhostAreReal) {
  const ShapesOnly shapes;
  EXPECT_EQ(torch::tensor({1, 2, 4}).sum().item<int>(), 7);
  EXPECT_FALSE(is_ghost(torch::arange(100).unsqueeze(1) < torch::arange(100)));
  EXPECT_TRUE(is_ghost(torch::arange(1000).unsqueeze(1) < torch::arange(1000)));
  EXPECT_TRUE(is_ghost(torch::zeros({64 << 10, 1})));
}

// Of a batch norm, which its schema does not say.
TEST(Ghosts, StatisticsThatAreWrittenAreGhosts) {
  torch::nn::BatchNorm1d norm(4);
  {
    const ShapesOnly shapes(kAllGhosts);
    norm->forward(torch::randn({8, 4}));
    EXPECT_TRUE(is_ghost(norm->running_mean));
    EXPECT_TRUE(is_ghost(norm->running_var));
  }
  EXPECT_EQ(norm->running_mean.abs().sum().item<float>(), 0);
  EXPECT_EQ(norm->running_var.sum().item<float>(), 4);
}

TEST(GhostsDeathTest, NullPointerIsExplained) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto read = [] {
    const ShapesOnly shapes(kAllGhosts);
    const Tensor ghost = torch::ones({4});
    const auto* const memory = static_cast<const volatile char*>(ghost.data_ptr());
    return *memory;
  };
  EXPECT_DEATH(read(), "a tensor that has a shape alone, by data_ptr\\(\\)");
}

}  // namespace
}  // namespace epl
