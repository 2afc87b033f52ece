#include "passes/own_generators.h"

#include <gmock/gmock.h>

#include "config/test_environment.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/dense_gradients.h"

namespace epl {
namespace {

template <typename AnyPass>
std::string after(const std::string& text, bool changes = true) {
  Graph graph = parse_graph(text);
  EXPECT_EQ(AnyPass().run(graph), changes);
  verify_graph(graph, AnyPass().name());
  return "\n" + print_graph(graph);
}

TEST(OwnGenerators, FillsWhatIsLikeAnotherTensor) {
  EXPECT_EQ(after<OwnGenerators>(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::randn_like(%0, none, none, none, none, none) {forward}
  return loss %9, metric all "y" %1)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %10: f32[4] = aten::empty_like(%0, none, none, none, none, none) {forward}
  %1: f32[4] = aten::normal_functional(%10, 0.0, 1.0, none) {forward}
  return loss %9, metric all "y" %1
)");
}

TEST(OwnGenerators, TakesTheOverloadWithAGenerator) {
  EXPECT_THAT(after<OwnGenerators>(R"(graph
  %9: f32[] = seed
  %1: f32[4] = aten::rand([4], none, none, none, none) {forward}
  return loss %9, metric all "y" %1)"),
              testing::HasSubstr("aten::rand.generator([4], none, none, none, none, none)"));
}

TEST(OwnGenerators, LeavesOperatorsThatHaveOne) {
  after<OwnGenerators>(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::bernoulli.p(%0, 0.5, none) {forward}
  return loss %9, metric all "y" %1)",
                       false);
}

TEST(OwnGenerators, RefusesAnOperatorThatHasNoOtherForm) {
  EXPECT_THAT(error_of([] {
                after<OwnGenerators>(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4], %2: b8[4] = aten::native_dropout(%0, 0.5, true) {forward}
  return loss %9, metric all "y" %1)");
              }),
              testing::HasSubstr("aten::native_dropout draws from the generator of the process"));
}

}  // namespace
}  // namespace epl
