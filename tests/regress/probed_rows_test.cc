// Which strategies a step has is known once it was recorded. It was tried with the rows that a
// device would have without a pipeline, and with all rows; a step that is legal only for the rows
// of a micro batch was refused.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

TEST(ProbedRows, AreThoseOfAMicroBatchAsWell) {
  const parity::OnDevices devices(2);
  init(Config{{"pipeline.num_micro_batch", 2}});
  torch::nn::Linear first(3, 3), second(3, 3);
  std::vector<torch::Tensor> parameters = first->parameters();
  for (const auto& each : second->parameters()) parameters.push_back(each);
  torch::optim::SGD optimizer(parameters, 0.1);
  Trainer trainer({{"first", first.ptr()}, {"second", second.ptr()}}, {optimizer},
                  [&](const Batch& batch) {
                    torch::Tensor x;
                    {
                      const With scope(replicate(1, "first"));
                      x = first(batch[0]).view({4, 3});
                    }
                    const With scope(replicate(1, "second"));
                    return second(x).pow(2).mean();
                  });
  EXPECT_NO_THROW(trainer.step({torch::randn({8, 3})}));
  init();
}

}  // namespace
}  // namespace epl
