// A user's whole program against the installed package: learns y = sum(x) and fails if it does not.
#include <epl/epl.h>

#include <iostream>

int main() {
  torch::manual_seed(0);
  epl::init(epl::Config{{"pipeline.num_micro_batch", 2}});
  torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  epl::Trainer trainer(net, optimizer, [&](const epl::Batch& batch) {
    return torch::nn::functional::mse_loss(net->forward(batch[0]), batch[1]);
  });

  const torch::Tensor x = torch::randn({64, 8});
  const torch::Tensor y = x.sum(/*dim=*/1, /*keepdim=*/true);
  const double first = trainer.step({x, y}).loss;
  double last = first;
  for (int step = 1; step < 20; ++step) last = trainer.step({x, y}).loss;
  std::cout << "loss " << first << " -> " << last << "\n";
  return last < 0.5 * first ? 0 : 1;
}
