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

// What torch::load() reads lies in memory that LibTorch's allocator did not make, as from_blob()'s
// does, which may be a variable of the step itself. It was taken for a number that never changes.
Tensor loaded(const Tensor& tensor) {
  std::stringstream file;
  torch::save(tensor, file);
  Tensor result;
  torch::load(result, file);
  return result;
}

testing::AssertionResult on_one_and_two_devices(const MakeProgram& make) {
  const Exactness rounding = within(1e-5, "sums over devices in another order");
  const Variant variant = Variant().steps(8).differs_by_rows("each call counts");
  auto result = parity(make, batch, bit_equal(), variant);
  if (result) result = parity(make, batch, rounding, Variant(variant).devices(2)) << ", 2 devices";
  if (result) {
    result = parity(make, batch, rounding, Variant(variant).micro_batches(2)) << ", micro batches";
  }
  return result;
}

MakeProgram with_flag(std::function<Tensor()> make_flag) {
  return [make_flag] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    const Tensor flag = make_flag();
    Program result = program(net, sgd(*net, 0.1), [net, flag](const Batch& rows) {
      const Tensor loss = cross_entropy(net->forward(rows[0]), rows[1]);
      return flag.item<double>() == 1 ? loss * 10 : loss;
    });
    result.before_step = [flag](int step) {
      if (step == 3) flag.fill_(1);
    };
    return result;
  };
}

TEST(ClosedOver, IsLoadedAndReadByItem) {
  EXPECT_TRUE(
      on_one_and_two_devices(with_flag([] { return loaded(torch::zeros({}, torch::kLong)); })));
}

TEST(ClosedOver, IsBorrowedAndReadByItem) {
  EXPECT_TRUE(on_one_and_two_devices(with_flag([] {
    auto memory = std::make_shared<float>(0);
    return torch::from_blob(memory.get(), {1}, [memory](void*) {});
  })));
}

TEST(ClosedOver, IsACounterThatWasLoaded) {
  const MakeProgram make = [] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    const Tensor count = loaded(torch::zeros({}, torch::kLong));
    return program(net, sgd(*net, 0.1), [net, count](const Batch& rows) {
      count.add_(1);
      const Tensor loss = cross_entropy(net->forward(rows[0]), rows[1]);
      return count.item<int64_t>() > 4 ? loss * 10 : loss;
    });
  };
  EXPECT_TRUE(parity(make, batch, bit_equal(), Variant().steps(8)));
}

// LibTorch shows both through a bit of the tensor, which a Value does not have.
TEST(ClosedOver, IsAConjugateOrANegative) {
  EXPECT_TRUE(on_one_and_two_devices([] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    const Tensor c = torch::randn({4}, torch::kComplexFloat).conj();
    const Tensor n = torch::imag(torch::randn({4}, torch::kComplexFloat).conj());
    return program(net, sgd(*net, 0.1), [net, c, n](const Batch& rows) {
      const Tensor z = net->forward(rows[0]);
      const Tensor turned = torch::real(torch::complex(z, z) * c * c);
      return cross_entropy(turned, rows[1]) + (z - n).square().mean();
    });
  }));
}

TEST(Buffer, IsAConjugateOrANegative) {
  struct Net : models::Mlp {
    using models::Mlp::Mlp;
    Tensor c = register_buffer("c", torch::randn({4}, torch::kComplexFloat).conj());
    Tensor n = register_buffer("n", torch::imag(torch::randn({4}, torch::kComplexFloat).conj()));
  };
  EXPECT_TRUE(on_one_and_two_devices([] {
    auto net = std::make_shared<Net>(8, 16, 2, 4);
    return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
      const Tensor z = net->forward(rows[0]);
      const Tensor turned = torch::real(torch::complex(z, z) * net->c * net->c);
      return cross_entropy(turned, rows[1]) + (z - net->n).square().mean();
    });
  }));
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
