// What a step closes over and the user points at other memory: set_data(), torch::load(). A
// recording once knew tensors by their address alone, or by whether they live.
#include <sstream>

#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::Tensor;

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

// A teacher that the trainer was not told of, refreshed now and then.
MakeProgram with_teacher(
    std::function<void(models::Mlp& teacher, const models::Mlp& net)> refresh) {
  return [refresh] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    auto teacher = std::make_shared<models::Mlp>(8, 16, 2, 4);
    Program result = program(net, sgd(*net, 0.1), [net, teacher](const Batch& rows) {
      const Tensor y = net->forward(rows[0]);
      return cross_entropy(y, rows[1]) + (y - teacher->forward(rows[0]).detach()).square().mean();
    });
    result.before_step = [=](int step) {
      if (step == 2 || step == 3) refresh(*teacher, *net);
    };
    return result;
  };
}

TEST(ClosedOver, IsLoaded) {
  EXPECT_TRUE(parity(with_teacher([](models::Mlp& teacher, const models::Mlp& net) {
                       std::stringstream file;
                       torch::serialize::OutputArchive out;
                       net.save(out);
                       out.save_to(file);
                       torch::serialize::InputArchive in;
                       in.load_from(file);
                       teacher.load(in);
                     }),
                     batch, bit_equal()));
}

TEST(ClosedOver, IsGivenOtherData) {
  EXPECT_TRUE(parity(with_teacher([](models::Mlp& teacher, const models::Mlp& net) {
                       const auto from = net.parameters();
                       auto to = teacher.parameters();
                       for (size_t i = 0; i < to.size(); ++i) to[i].set_data(from[i].clone());
                     }),
                     batch, bit_equal()));
}

// No operator sees the tensor behind x.data(): only its memory tells that another one was assigned.
TEST(ClosedOver, IsReadAsDataAndAssignedLater) {
  const MakeProgram make = [] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    auto scale = std::make_shared<Tensor>(torch::ones({4}));
    Program result = program(net, sgd(*net, 0.1), [net, scale](const Batch& rows) {
      return cross_entropy(net->forward(rows[0]) * scale->data(), rows[1]);
    });
    result.before_step = [=](int step) {
      if (step >= 3) *scale = torch::full({4}, static_cast<double>(step));
    };
    return result;
  };
  EXPECT_TRUE(parity(make, batch, bit_equal(), Variant().steps(6)));
  EXPECT_TRUE(parity(make, batch, within(1e-5, "sums over devices in another order"),
                     Variant().steps(6).devices(2)));
}

MakeProgram with_data(std::function<Tensor(const Tensor& weight)> other) {
  return [other] {
    auto net = std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(8, 8).bias(false));
    Program result = program(net, sgd(*net, 0.1), [net](const Batch& rows) {
      return net->forward(rows[0]).square().mean();
    });
    result.before_step = [=](int step) {
      if (step != 2) return;
      net->weight.set_data(other(net->weight.detach()));
      net->weight.mutable_grad() = Tensor();  // of the old shape
    };
    return result;
  };
}

TEST(Parameter, IsTransposedInPlace) {
  EXPECT_TRUE(parity(with_data([](const Tensor& weight) { return weight.t(); }), batch,
                     within(1e-6, "another kernel of mm")));
}

TEST(Parameter, IsNarrowedInPlace) {
  EXPECT_TRUE(parity(with_data([](const Tensor& weight) { return weight.narrow(0, 0, 4); }), batch,
                     within(1e-6, "another kernel of mm")));
}

}  // namespace
}  // namespace epl::parity
