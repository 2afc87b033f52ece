// Programs as they are written in public: whole loops with their data loader, their evaluation and
// what they keep between steps. Each trains once by the plain loop and once by a trainer that
// stands in its place.
#include <torch/script.h>

#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

// Takes the steps of one optimizer, by a trainer or by the plain loop.
class Steps {
 public:
  Steps(bool by_epl, std::vector<NamedModule> modules, torch::optim::Optimizer& optimizer,
        StepFunction step, TrainerOptions options = {})
      : by_epl_(by_epl),
        optimizer_(optimizer),
        step_(step),
        options_(options),
        trainer_(std::move(modules), {optimizer}, std::move(step), options) {}

  StepResult step(const Batch& batch) {
    if (by_epl_) return trainer_.step(batch);
    optimizer_.zero_grad();
    StepOutput output = step_(batch);
    output.loss.backward();
    if (options_.clip_grad_norm > 0) {
      torch::nn::utils::clip_grad_norm_(optimizer_.param_groups()[0].params(),
                                        options_.clip_grad_norm);
    }
    optimizer_.step();
    StepResult result;
    result.loss = output.loss.item<double>();
    for (const auto& [name, tensor] : output.metrics) result.metrics[name] = tensor.detach();
    return result;
  }

 private:
  bool by_epl_;
  torch::optim::Optimizer& optimizer_;
  StepFunction step_;
  TrainerOptions options_;
  Trainer trainer_;
};

Tensors tensors_of(const torch::nn::Module& net) {
  Tensors all;
  for (const Tensor& tensor : net.parameters()) all.push_back(tensor.detach());
  for (const Tensor& tensor : net.buffers()) all.push_back(tensor.detach());
  return all;
}

// `train` runs the whole program and returns whatever must be the same both ways.
testing::AssertionResult same_both_ways(const std::function<Tensors(bool by_epl)>& train) {
  at::set_num_threads(1);
  std::vector<Tensors> results;
  for (bool by_epl : {false, true}) {
    epl::init();
    torch::manual_seed(7);
    results.push_back(train(by_epl));
  }
  if (results[0].size() != results[1].size()) return testing::AssertionFailure() << "other tensors";
  for (size_t i = 0; i < results[0].size(); ++i) {
    auto same =
        same_tensor("tensor " + std::to_string(i), results[0][i], results[1][i], bit_equal());
    if (!same) return same;
  }
  return testing::AssertionSuccess();
}

struct Rows : torch::data::datasets::Dataset<Rows> {
  Rows(Tensor data, Tensor target) : data(std::move(data)), target(std::move(target)) {}
  torch::data::Example<> get(size_t index) override {
    const auto row = static_cast<int64_t>(index);
    return {data[row], target[row]};
  }
  torch::optional<size_t> size() const override { return data.size(0); }
  Tensor data, target;
};

// ------------------------------------------------------------------------------------------------

// A Sequential of the user's own, with plain functions between its modules.
struct FunctionsBetweenImpl : torch::nn::SequentialImpl {
  FunctionsBetweenImpl() {
    push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)));
    push_back(torch::nn::BatchNorm2d(4));
    push_back(torch::nn::Functional(torch::relu));
    push_back(torch::nn::Functional(torch::max_pool2d, 2, 2, 0, 1, false));
    push_back(torch::nn::Functional([](Tensor x) { return x.flatten(1); }));
    push_back(torch::nn::Dropout(0.3));
    push_back(torch::nn::Linear(4 * 3 * 3, 5));
    push_back(torch::nn::Functional([](Tensor x) { return torch::log_softmax(x, 1); }));
  }
};
TORCH_MODULE(FunctionsBetween);

Tensors classify_from_a_loader(bool by_epl, size_t workers) {
  FunctionsBetween net;
  net->to(torch::kCPU);
  auto rows = Rows(torch::rand({22, 1, 6, 6}), classes(5, {22}))
                  .map(torch::data::transforms::Normalize<>(0.5, 0.25))
                  .map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      std::move(rows), torch::data::DataLoaderOptions().batch_size(8).workers(workers));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));
  torch::optim::StepLR schedule(optimizer, 1, 0.5);
  Steps steps(by_epl, {{"", net.ptr()}}, optimizer, [&](const Batch& batch) {
    auto scores = net->forward(batch[0]);
    return StepOutput(torch::nll_loss(scores, batch[1]),
                      {{"right", scores.argmax(1).eq(batch[1]).sum()}});
  });
  double loss = 0;
  double loss_in_eval = 0;
  int64_t right = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    net->train();
    for (auto& batch : *loader) {
      StepResult result = steps.step({batch.data, batch.target});
      loss += result.loss * static_cast<double>(batch.data.size(0));
      right += result.metrics.at("right").item<int64_t>();
    }
    schedule.step();
    net->eval();
    torch::InferenceMode inference;
    for (auto& batch : *loader) {
      loss_in_eval += torch::nll_loss(net->forward(batch.data), batch.target).item<double>();
    }
  }
  Tensors all = tensors_of(*net);
  all.push_back(torch::tensor({loss, loss_in_eval, static_cast<double>(right)}));
  return all;
}

TEST(PublicStyle, EpochsFromALoaderWithEvaluationBetween) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) { return classify_from_a_loader(by_epl, 0); }));
}

TEST(PublicStyle, EpochsFromALoaderWithThreadsOfItsOwn) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) { return classify_from_a_loader(by_epl, 2); }));
}

// The module is a variable on the stack: no shared_ptr owns it.
TEST(PublicStyle, ANetOnTheStack) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    struct Net : torch::nn::Module {
      Net() { register_module("inner", inner), register_module("drop", drop); }
      Tensor forward(Tensor x) { return drop(inner->forward(x)); }
      std::shared_ptr<models::Mlp> inner = std::make_shared<models::Mlp>(8, 16, 2, 4);
      torch::nn::Dropout drop{0.5};
    } net;
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    StepFunction step = [&](const Batch& batch) {
      return F::cross_entropy(net.forward(batch[0]), batch[1]);
    };
    Trainer trainer(net, optimizer, step);
    double loss = 0;
    for (int i = 0; i < 5; ++i) {
      net.train(i != 3);
      const Batch batch{torch::randn({8, 8}), classes(4, {8})};
      if (by_epl) {
        loss += trainer.step(batch).loss;
      } else {
        optimizer.zero_grad();
        Tensor plain = step(batch).loss;
        plain.backward();
        optimizer.step();
        loss += plain.item<double>();
      }
      loss += trainer.evaluate(step, batch).loss.item<double>();
      EXPECT_EQ(net.is_training(), i != 3);
      EXPECT_EQ(net.drop->is_training(), i != 3);
    }
    Tensors all = tensors_of(net);
    all.push_back(torch::tensor({loss}));
    return all;
  }));
}

// All data in one batch that the function closes over: step() and step({}) take none.
TEST(PublicStyle, AStepWithoutABatch) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    const Tensor x = torch::randn({15, 1});
    const Tensor y = 3 * x + 1;
    torch::nn::Linear line(1, 1);
    torch::optim::SGD optimizer(line->parameters(), 0.1);
    Trainer trainer(line, optimizer,
                    [&](const Batch&) { return F::mse_loss(line->forward(x), y); });
    for (int i = 0; i < 6; ++i) {
      if (by_epl) {
        i % 2 == 0 ? trainer.step() : trainer.step({});
      } else {
        optimizer.zero_grad();
        F::mse_loss(line->forward(x), y).backward();
        optimizer.step();
      }
    }
    return tensors_of(*line);
  }));
}

// --- state between steps -----------------------------------------------------------------------

struct TextModelImpl : torch::nn::Module {
  TextModelImpl() {
    register_module("words", words);
    register_module("lstm", lstm);
    register_module("scores", scores);
  }
  using State = std::tuple<Tensor, Tensor>;
  std::tuple<Tensor, State> forward(Tensor x, State state) {
    auto [out, next] = lstm->forward(words(x), state);
    return {scores(out.flatten(0, 1)), next};
  }
  torch::nn::Embedding words{20, 6};
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(6, 8).batch_first(true)};
  torch::nn::Linear scores{8, 20};
};
TORCH_MODULE(TextModel);

// The state goes in with the batch and comes back as a metric.
TEST(PublicStyle, HiddenStateThatGoesThroughTheLoop) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    TextModel net;
    torch::optim::Adam optimizer(net->parameters(), 2e-3);
    TrainerOptions options;
    options.clip_grad_norm = 0.5;
    Steps steps(
        by_epl, {{"", net.ptr()}}, optimizer,
        [&](const Batch& batch) {
          auto [scores, state] = net->forward(batch[0], std::make_tuple(batch[2], batch[3]));
          auto [hidden, cell] = state;
          return StepOutput(F::cross_entropy(scores, batch[1]),
                            {{"hidden", hidden}, {"cell", cell}});
        },
        options);
    const Tensor text = classes(20, {4, 41});
    for (int epoch = 0; epoch < 2; ++epoch) {
      Tensor hidden = torch::zeros({1, 4, 8});
      Tensor cell = torch::zeros({1, 4, 8});
      for (int64_t at = 0; at + 10 < text.size(1); at += 10) {
        const Tensor target = text.slice(1, at + 1, at + 11).reshape(-1);
        auto result = steps.step({text.slice(1, at, at + 10), target, hidden, cell});
        hidden = result.metrics.at("hidden");
        cell = result.metrics.at("cell");
      }
    }
    return tensors_of(*net);
  }));
}

// The state lives in two variables that the function writes in place; the loop gives them new
// tensors when an epoch begins.
TEST(PublicStyle, HiddenStateThatIsAssignedWhenAnEpochBegins) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    TextModel net;
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    Tensor hidden;
    Tensor cell;
    Steps steps(by_epl, {{"", net.ptr()}}, optimizer, [&](const Batch& batch) {
      auto [scores, state] = net->forward(batch[0], std::make_tuple(hidden.clone(), cell.clone()));
      hidden.copy_(std::get<0>(state).detach());
      cell.copy_(std::get<1>(state).detach());
      return F::cross_entropy(scores, batch[1]);
    });
    const Tensor text = classes(20, {4, 31});
    for (int epoch = 0; epoch < 3; ++epoch) {
      hidden = torch::zeros({1, 4, 8});
      cell = torch::zeros({1, 4, 8});
      for (int64_t at = 0; at + 10 < text.size(1); at += 10) {
        steps.step({text.slice(1, at, at + 10), text.slice(1, at + 1, at + 11).reshape(-1)});
      }
    }
    Tensors all = tensors_of(*net);
    all.push_back(hidden);
    return all;
  }));
}

// Data that reach the function through a variable instead of the batch.
TEST(PublicStyle, RowsInAVariableThatTheLoopAssigns) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    torch::nn::Linear net(4, 3);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Tensor rows;
    Steps steps(by_epl, {{"", net.ptr()}}, optimizer,
                [&](const Batch&) { return net->forward(rows).pow(2).mean(); });
    for (int i = 0; i < 5; ++i) {
      rows = torch::randn({8, 4});
      steps.step({});
    }
    return tensors_of(*net);
  }));
}

// --- two optimizers ----------------------------------------------------------------------------

// The discriminator's loss is not detached from the generator, whose gradients the plain loop
// throws away by zero_grad(). Both are saved in the middle and loaded once more.
TEST(PublicStyle, GanWhoseFakesAreNotDetached) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    using namespace torch::nn;
    Sequential discriminator(Linear(12, 16), LeakyReLU(LeakyReLUOptions().negative_slope(0.2)),
                             Linear(16, 1), Sigmoid());
    Sequential generator(Linear(6, 16), BatchNorm1d(16), ReLU(), Linear(16, 12), Tanh());
    torch::optim::Adam of_discriminator(discriminator->parameters(), 2e-3);
    torch::optim::Adam of_generator(generator->parameters(), 2e-3);
    const std::vector<NamedModule> both{{"discriminator", discriminator.ptr()},
                                        {"generator", generator.ptr()}};
    Steps discriminate(by_epl, both, of_discriminator, [&](const Batch& batch) {
      const int64_t rows = batch[0].size(0);
      auto real = discriminator->forward(batch[0]);
      auto fake = discriminator->forward(generator->forward(torch::randn({rows, 6})));
      return StepOutput(F::binary_cross_entropy(real, torch::full({rows, 1}, 0.9)) +
                            F::binary_cross_entropy(fake, torch::zeros({rows, 1})),
                        {{"real", real.mean()}, {"fake", fake.mean()}});
    });
    Steps generate(by_epl, both, of_generator, [&](const Batch& batch) {
      auto fake = generator->forward(torch::randn({batch[0].size(0), 6}));
      auto verdict = discriminator->forward(fake);
      return StepOutput(F::binary_cross_entropy(verdict, torch::ones_like(verdict)),
                        {{"picture", fake}});
    });
    Tensor seen = torch::zeros({2});
    Tensor picture;
    std::stringstream nets[2];
    std::stringstream optimizers[2];
    for (int i = 0; i < 6; ++i) {
      const Batch batch{torch::randn({i == 3 ? 5 : 8, 12})};
      auto result = discriminate.step(batch);
      seen += torch::stack({result.metrics.at("real"), result.metrics.at("fake")});
      picture = generate.step(batch).metrics.at("picture");
      if (i == 1) {
        torch::save(discriminator, nets[0]), torch::save(generator, nets[1]);
        torch::save(of_discriminator, optimizers[0]), torch::save(of_generator, optimizers[1]);
      }
      if (i == 4) {
        torch::load(discriminator, nets[0]), torch::load(generator, nets[1]);
        torch::load(of_discriminator, optimizers[0]), torch::load(of_generator, optimizers[1]);
      }
    }
    Tensors all = tensors_of(*discriminator);
    for (const Tensor& tensor : tensors_of(*generator)) all.push_back(tensor);
    all.push_back(seen);
    all.push_back(picture);
    return all;
  }));
}

// --- what is trained is no module of the trainer's -----------------------------------------------

// An image is trained against the features of two others; the net stays as it is. The loss has the
// shape [1].
TEST(PublicStyle, AnImageIsTrainedAndTheNetIsNot) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    const Tensor content = torch::rand({1, 3, 8, 8});
    const Tensor style = torch::rand({1, 3, 8, 8});
    Tensor image = content.clone().requires_grad_(true);
    torch::nn::Sequential layers(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)),
                                 torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                 torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).padding(1)));
    layers->apply([](torch::nn::Module& module) {
      torch::NoGradGuard no_grad;
      if (auto* conv = module.as<torch::nn::Conv2d>()) {
        torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
      }
    });
    const auto features = [&](Tensor x) {
      Tensors all;
      for (auto& layer : *layers) all.push_back(x = layer.forward<>(x));
      return all;
    };
    const auto gram = [](const Tensor& x) { return x.flatten(2)[0].mm(x.flatten(2)[0].t()); };
    torch::optim::Adam optimizer(Tensors{image}, torch::optim::AdamOptions(0.01));
    Steps steps(by_epl, {}, optimizer, [&](const Batch&) {
      const Tensors mine = features(image), wanted = features(content), like = features(style);
      Tensor of_content = torch::zeros({1});
      Tensor of_style = torch::zeros({1});
      for (size_t i = 0; i < mine.size(); ++i) {
        of_content += F::mse_loss(mine[i], wanted[i]);
        of_style += F::mse_loss(gram(mine[i]), gram(like[i])) / mine[i].numel();
      }
      return StepOutput(of_content + 100 * of_style, {{"content", of_content}});
    });
    Tensor seen = torch::zeros({1});
    for (int i = 0; i < 6; ++i) seen += steps.step({}).metrics.at("content");
    return Tensors{image.detach(), seen};
  }));
}

// TorchScript in the middle of a step: a backbone that moves its own statistics, a layer on top
// that is trained.
TEST(PublicStyle, ALayerOnTopOfAScriptModule) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    torch::jit::Module backbone("backbone");
    backbone.register_parameter("weight", torch::randn({6, 3, 3, 3}), /*is_buffer=*/false);
    backbone.register_buffer("mean", torch::zeros({6}));
    backbone.register_buffer("var", torch::ones({6}));
    backbone.define(R"(
      def forward(self, x):
        x = torch.conv2d(x, self.weight, None, [1, 1], [1, 1])
        x = torch.batch_norm(x, None, None, self.mean, self.var, True, 0.1, 1e-5, False)
        return torch.adaptive_avg_pool2d(torch.relu(x), [2, 2])
    )");
    torch::nn::Linear top(24, 2);
    torch::optim::Adam optimizer(top->parameters(), 1e-2);
    Steps steps(by_epl, {{"top", top.ptr()}}, optimizer, [&](const Batch& batch) {
      auto x = backbone.forward({batch[0]}).toTensor();
      return F::cross_entropy(top(x.view({x.size(0), -1})), batch[1]);
    });
    for (int i = 0; i < 6; ++i) {
      const int64_t rows = i == 4 ? 3 : 4;
      steps.step({torch::randn({rows, 3, 6, 6}), classes(2, {rows})});
    }
    Tensors all = tensors_of(*top);
    all.push_back(backbone.attr("mean").toTensor());
    return all;
  }));
}

// --- sequences of different length ---------------------------------------------------------------

// Writes captions word by word: fewer and fewer rows, as the shorter ones end. Now and then the
// next word is its own guess, by a draw that C++ looks at.
struct WriterImpl : torch::nn::Module {
  WriterImpl() {
    register_module("words", words);
    register_module("cell", cell);
    register_module("scores", scores);
  }
  Tensor forward(Tensor hidden, const Tensor& captions, const Tensor& lengths) {
    using torch::indexing::Slice;
    const auto longest = lengths[0].item<int64_t>();
    Tensor all = torch::zeros({captions.size(0), longest, 11});
    Tensor memory = hidden.tanh();
    Tensor guess;
    for (int64_t i = 0; i < longest; ++i) {
      const auto rows = (lengths > i).sum().item<int64_t>();
      const bool told = i == 0 || torch::rand(1).item<double>() < 0.5;
      const Tensor word = told ? captions.index({Slice(0, rows), i}) : guess.slice(0, 0, rows);
      std::tie(hidden, memory) = cell->forward(
          words(word), std::make_tuple(hidden.slice(0, 0, rows), memory.slice(0, 0, rows)));
      const Tensor now = scores(hidden);
      guess = now.argmax(1);
      all.index_put_({Slice(0, rows), i, Slice()}, now);
    }
    return all;
  }
  torch::nn::Embedding words{11, 5};
  torch::nn::LSTMCell cell{torch::nn::LSTMCellOptions(5, 6)};
  torch::nn::Linear scores{6, 11};
};
TORCH_MODULE(Writer);

TEST(PublicStyle, CaptionsOfDifferentLengthByTwoNetsAndOneOptimizer) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    torch::nn::Sequential reader(torch::nn::Linear(7, 6), torch::nn::BatchNorm1d(6),
                                 torch::nn::ReLU());
    Writer writer;
    Tensors parameters = reader->parameters();
    for (const Tensor& parameter : writer->parameters()) parameters.push_back(parameter);
    torch::optim::Adam optimizer(parameters, 1e-2);
    using torch::nn::utils::rnn::pack_padded_sequence;
    Steps steps(by_epl, {{"reader", reader.ptr()}, {"writer", writer.ptr()}}, optimizer,
                [&](const Batch& batch) {
                  auto scores = writer->forward(reader->forward(batch[0]), batch[1], batch[2]);
                  auto packed = pack_padded_sequence(scores, batch[2], true).data();
                  auto wanted = pack_padded_sequence(batch[1], batch[2], true).data();
                  return StepOutput(F::cross_entropy(packed, wanted),
                                    {{"right", packed.argmax(1).eq(wanted).sum()}});
                });
    int64_t right = 0;
    for (int i = 0; i < 6; ++i) {
      const Tensor lengths = std::get<0>(torch::randint(2, 6, {4}, torch::kLong).sort(0, true));
      const Tensor captions = classes(11, {4, lengths[0].item<int64_t>()});
      right +=
          steps.step({torch::randn({4, 7}), captions, lengths}).metrics.at("right").item<int64_t>();
    }
    Tensors all = tensors_of(*reader);
    for (const Tensor& tensor : tensors_of(*writer)) all.push_back(tensor);
    all.push_back(torch::tensor({right}));
    return all;
  }));
}

// --- autograd functions ----------------------------------------------------------------------

// A number that is kept for the way back, and a bias that need not be there.
struct Affine : torch::autograd::Function<Affine> {
  static Tensor forward(torch::autograd::AutogradContext* context, Tensor x, Tensor weight,
                        double scale, Tensor bias = Tensor()) {
    context->save_for_backward({x, weight, bias});
    context->saved_data["scale"] = scale;
    auto y = x.mm(weight.t());
    if (bias.defined()) y += bias.unsqueeze(0).expand_as(y);
    return y * scale;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor gradient = gradients[0] * context->saved_data["scale"].toDouble();
    const Tensor of_bias = saved[2].defined() ? gradient.sum(0) : Tensor();
    return {gradient.mm(saved[1]), gradient.t().mm(saved[0]), Tensor(), of_bias};
  }
};

TEST(PublicStyle, BareTensorsInAnAutogradFunctionWithAnOptionalArgument) {
  EXPECT_TRUE(same_both_ways([](bool by_epl) {
    Tensor first = torch::randn({6, 4}, torch::requires_grad());
    Tensor second = torch::randn({3, 6}, torch::requires_grad());
    Tensor bias = torch::randn({3}, torch::requires_grad());
    torch::optim::SGD optimizer(Tensors{first, second, bias}, 0.05);
    Steps steps(by_epl, {}, optimizer, [&](const Batch& batch) {
      auto x = Affine::apply(batch[0], first, 0.5).tanh();
      return Affine::apply(x, second, 2.0, bias).pow(2).mean();
    });
    for (int i = 0; i < 5; ++i) steps.step({torch::randn({5, 4})});
    return Tensors{first.detach(), second.detach(), bias.detach()};
  }));
}

}  // namespace
}  // namespace epl::parity
