// Steps that no recording can stand for: what they do depends on something that a replay would not
// see change. They used to be replayed all the same, with the numbers of the first step, or were
// refused on more than one device; now they run as the plain program would.
#include <gmock/gmock.h>

#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

const Exactness kRounding = within(1e-5, "sums over devices in another order");

using Loss = std::function<Tensor(Tensor logits, const Batch& batch)>;

MakeProgram classifier_with(const std::function<Loss()>& make_loss) {
  return [make_loss] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    const Loss loss = make_loss();
    return program(net, sgd(*net, 0.1, 0.9),
                   [net, loss](const Batch& batch) { return loss(net->forward(batch[0]), batch); });
  };
}

MakeProgram classifier(const Loss& loss) {
  return classifier_with([loss] { return loss; });
}

// What C++ reads, or counts, is that of the part that a call of the function sees.
Variant by_parts(int steps) {
  return Variant().steps(steps).differs_by_rows("each call sees its own rows, and its own number");
}

Batch rows_and_classes(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

// Every layout of data parallelism: one device, micro batches, devices, both.
testing::AssertionResult in_all_layouts(const MakeProgram& make) {
  for (int devices : {1, 2, 4}) {
    for (int micro_batches : {1, 2}) {
      const Variant variant = by_parts(6).devices(devices).micro_batches(micro_batches);
      auto result = parity(make, rows_and_classes, kRounding, variant);
      if (!result) return result << " on " << devices << " devices, " << micro_batches;
    }
  }
  return testing::AssertionSuccess();
}

// --- numbers of C++
// -------------------------------------------------------------------------------

MakeProgram annealed() {
  return classifier_with([] {
    auto calls = std::make_shared<int>(0);
    return Loss([calls](Tensor x, const Batch& batch) {
      const double weight = 1.0 / (1 + (*calls)++);
      return cross_entropy(x, batch[1]) + weight * x.square().mean();
    });
  });
}

MakeProgram annealed_where(const std::function<bool(const Batch&)>& counts) {
  return classifier_with([counts] {
    auto calls = std::make_shared<int>(0);
    return Loss([calls, counts](Tensor x, const Batch& batch) {
      const Tensor loss = cross_entropy(x, batch[1]);
      return counts(batch) ? loss + x.square().mean() * (1.0 / (1 + (*calls)++)) : loss;
    });
  });
}

TEST(PlainSteps, CounterInCppCountsEveryCall) { EXPECT_TRUE(in_all_layouts(annealed())); }

// A batch that cannot be cut is the work of one device, and of one call of the function.
TEST(PlainSteps, CounterInCppCountsBatchesThatAreNotCut) {
  const auto five_rows = [](int) { return Batch{torch::randn({5, 8}), classes(4, {5})}; };
  const Trace plain = train_plain(annealed(), five_rows, Variant().steps(6));
  const Trace epl = train_on_devices(annealed(), five_rows, Variant().steps(6).devices(3));
  EXPECT_TRUE(compare(plain, epl, bit_equal()));
}

// A function that leaves flags as it did not find them was called once more, for the plan.
MakeProgram in_turns() {
  return [] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    auto trains = std::make_shared<bool>(false);
    return program(net, sgd(*net, 0.1, 0.9), [net, trains](const Batch& batch) {
      *trains = !*trains;
      net->parameters()[0].set_requires_grad(*trains);
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
  };
}

TEST(PlainSteps, FunctionThatTogglesFlagsInEveryCall) {
  EXPECT_TRUE(in_all_layouts(in_turns()));
  EXPECT_TRUE(parity(
      in_turns(),
      [](int) {
        return Batch{torch::randn({9, 8}), classes(4, {9})};
      },
      kRounding, by_parts(8).micro_batches(3)));
}

TEST(PlainSteps, BranchByACounterInCpp) {
  EXPECT_TRUE(in_all_layouts(classifier_with([] {
    auto calls = std::make_shared<int>(0);
    return Loss([calls](Tensor x, const Batch& batch) {
      const Tensor loss = cross_entropy(x, batch[1]);
      return ++*calls % 2 == 0 ? loss + x.abs().mean() : loss;
    });
  })));
}

// A batch of another shape tells nothing of numbers: it used to count as the second look, and the
// counter stood still from then on.
TEST(PlainSteps, CounterInCppIsSeenAmongBatchesOfManyShapes) {
  EXPECT_TRUE(parity(
      annealed(),
      [](int step) {
        const int64_t rows = 4 + 2 * (step % 3);
        return Batch{torch::randn({rows, 8}), classes(4, {rows})};
      },
      kRounding, by_parts(9)));
}

// Annealing as loops do it: all micro batches of a step see the same number.
TEST(PlainSteps, NumberThatTheLoopSetsForEachStep) {
  EXPECT_TRUE(in_all_layouts([] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    auto weight = std::make_shared<double>(0);
    Program result = program(net, sgd(*net, 0.1), [net, weight](const Batch& batch) {
      const Tensor x = net->forward(batch[0]);
      return cross_entropy(x, batch[1]) + *weight * x.square().mean();
    });
    result.before_step = [weight](int step) { *weight = 0.1 * (1 + step); };
    return result;
  }));
}

TEST(PlainSteps, VariableThatTheLoopTakesFromAList) {
  EXPECT_TRUE(in_all_layouts([] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    std::vector<Tensor> targets;
    for (int i = 0; i < 6; ++i) targets.push_back(torch::full({4}, 0.1 * i));
    auto target = std::make_shared<Tensor>();
    Program result = program(net, sgd(*net, 0.1), [net, target](const Batch& batch) {
      return (net->forward(batch[0]) - *target).square().mean();
    });
    result.before_step = [target, targets](int step) {
      *target = targets[static_cast<size_t>(step)];
    };
    return result;
  }));
}

// The branch is met when others have long been looked at twice.
MakeProgram annealed_late() {
  return annealed_where([](const Batch& batch) { return batch[2].size(1) == 2; });
}

Batch wider_late(int step) {
  const int64_t width = step < 3 || step % 2 == 0 ? 1 : 2;
  return {torch::randn({8, 8}), classes(4, {8}), torch::zeros({8, width})};
}

TEST(PlainSteps, CounterInABranchThatComesLate) {
  for (int devices : {1, 2}) {
    EXPECT_TRUE(parity(annealed_late(), wider_late, kRounding, by_parts(12).devices(devices)))
        << devices;
  }
}

// Workers go on plainly together, from the step after the one that saw it.
TEST(PlainSteps, NumberInABranchThatComesLateOnWorkers) {
  const MakeProgram make = [] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    auto weight = std::make_shared<double>(0);
    Program late = program(net, sgd(*net, 0.1, 0.9), [net, weight](const Batch& batch) {
      const Tensor x = net->forward(batch[0]);
      const Tensor loss = cross_entropy(x, batch[1]);
      return batch[2].size(1) == 2 ? loss + *weight * x.square().mean() : loss;
    });
    late.before_step = [weight](int step) { *weight = 1.0 / (1 + step); };
    return late;
  };
  EXPECT_TRUE(parity(make, wider_late, kRounding, Variant().steps(12).workers({1, 1})));
}

// One of several micro batches was looked at: what the others would do is not known any more.
TEST(PlainSteps, CounterThatIsSeenTooLateOnWorkersIsAnError) {
  EXPECT_THAT(
      [] {
        parity::train_on_workers(annealed_late(), wider_late, by_parts(12).workers({2, 2}));
      },
      testing::ThrowsMessage<WorkersFailed>(testing::HasSubstr("too late for all workers")));
}

// An empty mask, as ports of Transformers hand on: there is nothing in it that C++ could have
// filled, so the step is replayed.
TEST(ReplayedSteps, ReadTensorsWithoutElements) {
  auto calls = std::make_shared<int>(0);
  const MakeProgram make = classifier([calls](Tensor x, const Batch& batch) {
    ++*calls;
    const Tensor none = torch::empty({0, 4});
    const Tensor mask = torch::cat({none.repeat({2, 1}), torch::ones({1, 4})});
    return cross_entropy(x * mask, batch[1]) + torch::empty({0}).sum();
  });
  const int steps = 8;
  EXPECT_TRUE(parity(make, rows_and_classes, bit_equal(), by_parts(steps)));
  EXPECT_EQ(*calls, steps + 2) << "the plain loop's and two recordings";
}

// Whatever is not filled by an operator that is known to fill was taken for a variable of the
// user's, which was another one in every step.
TEST(ReplayedSteps, FillMemoryPlaceByPlace) {
  auto calls = std::make_shared<int>(0);
  const MakeProgram make = classifier([calls](Tensor x, const Batch& batch) {
    ++*calls;
    const Tensor order = torch::arange(3, -1, -1).expand({x.size(0), 4});
    const Tensor turned = torch::empty_like(x).scatter_(1, order, x);
    const Tensor rows = torch::empty_like(x).index_put_({torch::arange(x.size(0))}, turned);
    return cross_entropy(rows, batch[1]);
  });
  const int steps = 8;
  EXPECT_TRUE(parity(make, rows_and_classes, bit_equal(), by_parts(steps)));
  EXPECT_EQ(*calls, steps + 2) << "the plain loop's and two recordings";
}

// Encodings of places, as ports of Transformers compute them in each step.
MakeProgram with_encodings(const std::shared_ptr<int>& calls) {
  return classifier([calls](Tensor x, const Batch& batch) {
    ++*calls;
    const Tensor places = torch::zeros({4});
    auto to = places.accessor<float, 1>();
    for (int64_t i = 0; i < 4; ++i) to[i] = static_cast<float>(i * i);
    return cross_entropy(x + places, batch[1]);
  });
}

TEST(ReplayedSteps, FillZerosByCpp) {
  auto calls = std::make_shared<int>(0);
  const int steps = 8;
  EXPECT_TRUE(parity(with_encodings(calls), rows_and_classes, bit_equal(), by_parts(steps)));
  EXPECT_EQ(*calls, steps + 2) << "the plain loop's and two recordings";
  EXPECT_TRUE(in_all_layouts(with_encodings(calls)));
}

// Noise of C++'s own.
TEST(PlainSteps, FillZerosByCppWithOtherNumbers) {
  EXPECT_TRUE(in_all_layouts(classifier_with([] {
    auto calls = std::make_shared<int>(0);
    return Loss([calls](Tensor x, const Batch& batch) {
      const Tensor noise = torch::zeros({4});
      noise.data_ptr<float>()[1] = 0.1F * static_cast<float>((*calls)++);
      return cross_entropy(x + noise, batch[1]);
    });
  })));
}

TEST(PlainSteps, FillWhatAnOperatorHasNotFilled) {
  EXPECT_TRUE(in_all_layouts(classifier([](Tensor x, const Batch& batch) {
    Tensor scale = torch::empty({4});
    scale.slice(0, 0, 2).copy_(batch[0].detach().mean(0).slice(0, 0, 2));
    scale.data_ptr<float>()[2] = 3;
    scale.data_ptr<float>()[3] = 4;
    return cross_entropy(x * scale, batch[1]);
  })));
}

TEST(PlainSteps, FillWhatResizeMade) {
  EXPECT_TRUE(in_all_layouts(classifier([](Tensor x, const Batch& batch) {
    Tensor scale = torch::ones({1}).resize_({4});
    for (int i = 0; i < 4; ++i) scale.data_ptr<float>()[i] = static_cast<float>(i);
    return cross_entropy(x * scale, batch[1]);
  })));
}

// --- data that C++ reads or makes unseen
// ------------------------------------------------------------

// The user's own loop over labels. Memory that an operator made (zeros) is filled by it.
MakeProgram with_targets_by_cpp() {
  return classifier([](Tensor x, const Batch& batch) {
    const Tensor target = torch::zeros({batch[1].size(0), 4});
    const auto from = batch[1].accessor<int64_t, 1>();
    auto to = target.accessor<float, 2>();
    for (int64_t i = 0; i < from.size(0); ++i) to[i][from[i]] = 1;
    return (x - target).square().mean();
  });
}

TEST(PlainSteps, AccessorFillsWhatAnOperatorMade) {
  EXPECT_TRUE(in_all_layouts(with_targets_by_cpp()));
}

// The first batches look as if nothing depended on them.
TEST(PlainSteps, AccessorReadsLabelsThatAreAllAlikeAtFirst) {
  const MakeBatch batch = [](int step) {
    return Batch{torch::randn({8, 8}),
                 step < 4 ? torch::zeros({8}, torch::kLong) : classes(4, {8})};
  };
  for (int devices : {1, 2}) {
    EXPECT_TRUE(parity(with_targets_by_cpp(), batch, kRounding, by_parts(8).devices(devices)));
  }
}

// Targets are read in a branch that the first batches do not take.
TEST(PlainSteps, AccessorReadsInABranchThatComesLate) {
  const MakeProgram make = classifier([](Tensor x, const Batch& batch) {
    if (!batch[1].gt(0).any().item<bool>()) return x.square().mean();
    const auto* labels = batch[1].data_ptr<int64_t>();
    const std::vector<int64_t> copied(labels, labels + batch[1].numel());
    return cross_entropy(x, torch::tensor(copied));
  });
  const MakeBatch batch = [](int step) {
    return Batch{torch::randn({8, 8}),
                 step < 3 ? torch::zeros({8}, torch::kLong) : classes(4, {8})};
  };
  for (int devices : {1, 2}) {
    EXPECT_TRUE(parity(make, batch, kRounding, by_parts(8).devices(devices))) << devices;
  }
}

// Clipping of weights as WGANs once did it, by hand.
TEST(PlainSteps, ParametersAndBuffersAreWrittenThroughPointers) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        Tensor count = net->register_buffer("count", torch::zeros({1}));
        return program(net, sgd(*net, 0.5), [net, count](const Batch& batch) {
          for (const Tensor& parameter : net->parameters()) {
            auto* weight = parameter.data_ptr<float>();
            for (int64_t i = 0; i < parameter.numel(); ++i) {
              weight[i] = std::min(0.1F, std::max(-0.1F, weight[i]));
            }
          }
          count.data_ptr<float>()[0] += 1;
          return cross_entropy(net->forward(batch[0]), batch[1]) + 0 * count.sum();
        });
      },
      rows_and_classes, bit_equal(), by_parts(6)));
}

TEST(PlainSteps, LabelsReadByAnAccessor) {
  const Loss by_accessor = [](Tensor x, const Batch& batch) {
    Tensor weights = torch::empty({x.size(0)});
    const auto labels = batch[1].accessor<int64_t, 1>();
    for (int64_t i = 0; i < x.size(0); ++i) weights.data_ptr<float>()[i] = 1.0f + labels[i];
    return (F::cross_entropy(x, batch[1], F::CrossEntropyFuncOptions().reduction(torch::kNone)) *
            weights)
        .mean();
  };
  EXPECT_TRUE(in_all_layouts(classifier(by_accessor)));
  EXPECT_TRUE(
      parity(classifier(by_accessor), rows_and_classes, kRounding, by_parts(5).workers({1, 1})));
  EXPECT_TRUE(parity(classifier(by_accessor), rows_and_classes, kRounding,
                     by_parts(5).workers({2, 2}).micro_batches(2)));
}

// A kernel of the user's own, as custom operators are mostly written.
struct SquareByHand : torch::autograd::Function<SquareByHand> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    Tensor result = torch::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) {
      result.data_ptr<float>()[i] = x.data_ptr<float>()[i] * x.data_ptr<float>()[i];
    }
    return result;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2 * context->get_saved_variables()[0]};
  }
};

TEST(PlainSteps, KernelOfTheUsersOwn) {
  EXPECT_TRUE(in_all_layouts(classifier([](Tensor x, const Batch& batch) {
    return cross_entropy(SquareByHand::apply(x.contiguous()), batch[1]);
  })));
}

// --- data that C++ reads back
// -----------------------------------------------------------------------

const Loss kScaledByItem = [](Tensor x, const Batch& batch) {
  const double scale = 1.0 + std::abs(batch[0].mean().item<double>());
  return cross_entropy(x, batch[1]) * scale;
};

TEST(PlainSteps, NumberReadByItem) { EXPECT_TRUE(in_all_layouts(classifier(kScaledByItem))); }

TEST(PlainSteps, NumberReadByItemOnSeveralWorkers) {
  EXPECT_TRUE(
      parity(classifier(kScaledByItem), rows_and_classes, kRounding, by_parts(5).workers({1, 1})));
}

TEST(PlainSteps, BranchesThatDifferFromRowsToRows) {
  const Loss branching = [](Tensor x, const Batch& batch) {
    const Tensor loss = cross_entropy(x, batch[1]);
    return batch[0].sum().gt(0).item<bool>() ? loss * 2 : loss + x.abs().mean();
  };
  EXPECT_TRUE(in_all_layouts(classifier(branching)));
  EXPECT_TRUE(
      parity(classifier(branching), rows_and_classes, kRounding, by_parts(6).workers({1, 1})));
  EXPECT_TRUE(parity(classifier(branching), rows_and_classes, kRounding,
                     by_parts(6).workers({2, 2}).micro_batches(2)));
}

TEST(PlainSteps, SelectionsOfDifferentSizes) {
  const Loss selecting = [](Tensor x, const Batch& batch) {
    return x.index({batch[1].gt(1)}).square().sum() / 8 + cross_entropy(x, batch[1]);
  };
  EXPECT_TRUE(in_all_layouts(classifier(selecting)));
  EXPECT_TRUE(
      parity(classifier(selecting), rows_and_classes, kRounding, by_parts(5).workers({1, 1})));
}

// --- errors that the step catches
// -------------------------------------------------------------------

// The operator that threw is no node, and the way that the step went then was taken for ever.
TEST(PlainSteps, CatchWhatAnOperatorThrows) {
  const MakeProgram make = classifier([](Tensor x, const Batch& batch) {
    const Tensor a = torch::eye(4) * batch[2].mean() + 0.01 * x.t().matmul(x);
    Tensor factor;
    try {
      factor = torch::linalg_cholesky(a);
    } catch (const c10::Error&) {
      factor = torch::linalg_cholesky(a + 5 * torch::eye(4));
    }
    return cross_entropy(x, batch[1]) + factor.square().mean();
  });
  const MakeBatch definite_later = [](int step) {
    return Batch{torch::randn({8, 8}), classes(4, {8}), torch::full({8}, step < 2 ? -2.0 : 2.0)};
  };
  EXPECT_TRUE(parity(make, definite_later, bit_equal(), by_parts(6)));
  EXPECT_TRUE(parity(make, definite_later, kRounding, by_parts(6).devices(2)));
  EXPECT_TRUE(parity(make, definite_later, kRounding, by_parts(6).micro_batches(2)));
}

// --- what stays true in a plain step
// ------------------------------------------------------------------

TEST(PlainSteps, ClipAsOtherStepsDo) {
  EXPECT_TRUE(parity(annealed(), rows_and_classes, kRounding,
                     by_parts(4).devices(2).clip_norm(0.1).clip_after()));
  EXPECT_TRUE(
      parity(annealed(), rows_and_classes, kRounding, by_parts(4).devices(2).clip_norm(0.1)));
}

TEST(PlainSteps, SumOfGradients) {
  EXPECT_TRUE(parity(annealed(), rows_and_classes, kRounding,
                     by_parts(4).devices(2).micro_batches(2).sum()));
}

TEST(PlainSteps, DropoutAndBatchNormDrawAndCountOnce) {
  const auto make = [] {
    torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16),
                              torch::nn::Dropout(0.5), torch::nn::Linear(16, 4));
    auto calls = std::make_shared<int>(0);
    return program(net.ptr(), sgd(*net, 0.1), [net, calls](const Batch& batch) mutable {
      return cross_entropy(net->forward(batch[0]), batch[1]) * (1.0 + (*calls)++);
    });
  };
  EXPECT_TRUE(parity(make, rows_and_classes, bit_equal(), Variant().steps(6)));
  EXPECT_TRUE(parity(make, rows_and_classes, kRounding, by_parts(6).devices(2)));
}

// An ordinary step is looked at in two steps, and then replayed: the function runs no more.
TEST(PlainSteps, OrdinaryStepRunsTwice) {
  for (int micro_batches : {1, 4}) {
    init(Config{{"pipeline.num_micro_batch", micro_batches}});
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    int calls = 0;
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      ++calls;
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
    for (int i = 0; i < 5; ++i) trainer.step(rows_and_classes(i));
    EXPECT_EQ(calls, 2 * micro_batches);
  }
  init();
}

// --- batches that cannot be cut evenly
// ----------------------------------------------------------------

TEST(PlainSteps, ShortLastBatchOnTwoDevicesIsThatOfThePlainLoop) {
  const Batch last = {torch::randn({5, 8}), classes(4, {5})};
  const Batch full = {torch::randn({8, 8}), classes(4, {8})};
  const auto train = [&](const std::function<void(const Batch&)>& step) {
    for (const Batch& batch : {full, full, full, last, full, last}) step(batch);
  };
  torch::manual_seed(1);
  auto plain_net = std::make_shared<models::Mlp>(8, 16, 2, 4);
  torch::optim::SGD plain_optimizer(plain_net->parameters(),
                                    torch::optim::SGDOptions(0.1).momentum(0.9));
  train([&](const Batch& batch) {
    plain_optimizer.zero_grad();
    cross_entropy(plain_net->forward(batch[0]), batch[1]).backward();
    plain_optimizer.step();
  });
  run_on_workers({2}, [&](int) {
    init();
    torch::manual_seed(1);
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
    train([&](const Batch& batch) { trainer.step(batch); });
    EXPECT_TRUE(same_modules(*plain_net, *net, kRounding));
  });
}

}  // namespace
}  // namespace epl::parity
