// In-place operators and views, in every flavour that people write.
#include "tests/models/mlp.h"
#include "tests/models/unusual.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;
using torch::indexing::Slice;

struct Flavour {
  const char* name;
  std::function<Tensor(Tensor)> body;  // [8, 16] to [8, 16], between two linear layers
};
void PrintTo(const Flavour& flavour, std::ostream* out) { *out << flavour.name; }

class InPlace : public testing::TestWithParam<Flavour> {
 protected:
  MakeProgram net() {
    return [body = GetParam().body] {
      auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
      return program(net, sgd(*net, 0.1), [net, body](const Batch& batch) {
        auto x = body(net->layers[0]->as<torch::nn::Linear>()->forward(batch[0]));
        return cross_entropy(net->layers[2]->as<torch::nn::Linear>()->forward(x), batch[1]);
      });
    };
  }
};

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

TEST_P(InPlace, TrainsAsInThePlainLoop) { EXPECT_TRUE(parity(net(), batch, bit_equal())); }

TEST_P(InPlace, TrainsAsInThePlainLoopWithMicroBatches) {
  EXPECT_TRUE(parity(
      net(),
      [](int) {
        return Batch{torch::randn({16, 8}), classes(4, {16})};
      },
      bit_equal(),
      Variant().micro_batches(2).steps(3).differs_by_rows("rows are written by their numbers")));
}

const Flavour kFlavours[] = {
    {"arithmetic_assignment",
     [](Tensor x) {
       auto y = x * 2;
       y += x;
       y -= 1;
       y *= 0.5;
       y /= 3;
       return y;
     }},
    {"relu_of_a_layer", [](Tensor x) { return x.relu_(); }},
    {"relu_of_a_sum",
     [](Tensor x) {
       auto y = x + 1;
       y += x;
       return y.relu_();
     }},
    {"relu_after_relu", [](Tensor x) { return (x.relu_() - 0.1).relu_(); }},
    {"one_row_set_to_a_number",
     [](Tensor x) {
       x[0] = 1.0;
       x[1][2] = -1.0;
       return x;
     }},
    {"one_row_set_to_another",
     [](Tensor x) {
       auto y = x.clone();
       y[1] = x[2] * 3;
       return y;
     }},
    {"index_put_of_a_slice",
     [](Tensor x) {
       x.index_put_({Slice(0, 4), 2}, 0.5);
       x.index_put_({Slice(), Slice(8, 12)}, x.index({Slice(), Slice(0, 4)}) * 2);
       return x;
     }},
    {"index_put_of_chosen_rows",
     [](Tensor x) {
       auto rows = torch::tensor({5, 1, 3});
       return x.index_put_({rows}, x.index({rows.flip(0)}));
     }},
    {"index_put_that_accumulates",
     [](Tensor x) {
       auto rows = torch::tensor({5, 1, 5});
       return x.clone().index_put_({rows}, x.slice(0, 0, 3), /*accumulate=*/true);
     }},
    {"index_put_under_a_mask",
     [](Tensor x) { return x.clone().index_put_({x.detach() > 0}, 0.25); }},
    {"copy_into_a_slice",
     [](Tensor x) {
       auto y = x * 2;
       y.slice(1, 0, 8).copy_(x.slice(1, 8, 16));
       return y;
     }},
    {"copy_that_broadcasts_and_casts",
     [](Tensor x) {
       auto y = torch::zeros({8, 16});
       y.copy_(x.mean(0).to(torch::kDouble));
       return y + x;
     }},
    {"masked_fill", [](Tensor x) { return x.masked_fill_(x.detach() > 0.5, 0.1); }},
    {"masked_fill_by_a_causal_mask",
     [](Tensor x) {
       auto scores = torch::matmul(x, x.t());
       scores.masked_fill_(torch::ones({8, 8}, torch::kBool).triu(1), -INFINITY);
       return torch::matmul(torch::softmax(scores, -1), x);
     }},
    {"clamp", [](Tensor x) { return (x * 2).clamp_(-1, 1); }},
    {"clamp_min_and_max", [](Tensor x) { return (x * 2).clamp_min_(-1).clamp_max_(0.5); }},
    {"dropout",
     [](Tensor x) { return F::dropout(x, F::DropoutFuncOptions().p(0.5).inplace(true)); }},
    {"activations_in_place",
     [](Tensor x) {
       auto a = F::elu(x * 1, F::ELUFuncOptions().inplace(true));
       auto b = F::leaky_relu(x * 2, F::LeakyReLUFuncOptions().inplace(true));
       auto c = F::hardtanh(x * 3, F::HardtanhFuncOptions().inplace(true));
       auto d = F::selu(x * 4, F::SELUFuncOptions().inplace(true));
       auto e = F::threshold(x * 5, F::ThresholdFuncOptions(0.1, 0).inplace(true));
       return (a + b + c + d + e) / 5;
     }},
    {"unary_operators",
     [](Tensor x) {
       auto a = x.mul(0.1).exp_();
       auto b = x.abs().add_(1).sqrt_();
       auto c = x.mul(2).sigmoid_() + x.mul(3).tanh_();
       auto d = x.neg().sin_();
       return a + b + c + d;
     }},
    {"zeros_then_slice_assignment",
     [](Tensor x) {
       auto y = torch::zeros({8, 16});
       y.slice(1, 0, 8).copy_(x.slice(1, 8, 16));
       y.slice(1, 8, 16).copy_(torch::tanh(x.slice(1, 0, 8)));
       return y;
     }},
    {"empty_then_filled_row_by_row",
     [](Tensor x) {
       auto y = torch::empty({8, 16});
       for (int64_t i = 0; i < 8; ++i) y[i] = x[7 - i] * static_cast<double>(i);
       return y;
     }},
    {"cumulative_sum_in_a_loop",
     [](Tensor x) {
       auto state = torch::zeros({8});
       std::vector<Tensor> states;
       for (int64_t t = 0; t < 16; ++t) {
         state += x.select(1, t);
         states.push_back(state.clone());
       }
       return torch::stack(states, 1);
     }},
    {"recurrence_through_rows_of_one_tensor",
     [](Tensor x) {
       auto states = torch::zeros({16, 8});
       states[0] = x.select(1, 0);
       for (int64_t t = 1; t < 16; ++t) states[t] = states[t - 1] * 0.9 + x.select(1, t);
       return states.t();
     }},
    {"view_read_after_its_base_changed",
     [](Tensor x) {
       auto y = x.clone();
       auto view = y.slice(0, 0, 4);
       y.mul_(2);
       return torch::cat({view, y.slice(0, 4, 8)});
     }},
    {"base_read_after_its_view_changed",
     [](Tensor x) {
       auto y = x * 1;
       auto row = y.view({4, 2, 16}).select(1, 0);
       row.add_(1).mul_(2);
       return y;
     }},
    {"view_read_after_another_view_changed",
     [](Tensor x) {
       auto y = x * 1;
       auto left = y.slice(1, 0, 10);
       auto right = y.slice(1, 6, 16);
       left.mul_(3);
       return torch::cat({right, left.slice(1, 0, 6)}, 1);
     }},
    {"value_read_before_and_after_a_change",
     [](Tensor x) {
       auto y = x * 1;
       auto before = y + 1;
       y.add_(x);
       auto after = y + 2;
       y.sub_(1);
       return before + after + y;
     }},
    {"transposed_view_written",
     [](Tensor x) {
       x.t().slice(0, 0, 4).zero_();
       x.t().select(0, 5).fill_(0.5);
       return x;
     }},
    {"strided_and_overlapping_views",
     [](Tensor x) {
       auto y = x.clone();
       auto window = y.unfold(1, 4, 2);  // overlapping windows, read only
       y.slice(1, 0, 16, 3).mul_(2);
       auto corner = y.as_strided({8, 7}, {16, 2}, 1);
       return y + torch::cat({window.sum(-1), corner, corner.slice(1, 0, 2)}, 1);
     }},
    {"ternary_operators",
     [](Tensor x) {
       auto y = x * 1;
       y.addcmul_(x, x.detach().abs(), 0.1);
       y.addcdiv_(x, x.detach().abs().add(1), 0.5);
       y.lerp_(x, 0.3);
       return y;
     }},
    {"matrix_operators",
     [](Tensor x) {
       auto y = x * 1;
       y.addmm_(x, torch::eye(16), 0.5, 2);
       auto gram = torch::zeros({16, 16}).addmm_(x.t(), x);
       return y + x.matmul(gram.triu_(1).fill_diagonal_(0)) * 0.01;
     }},
    {"scatter_and_index_operators",
     [](Tensor x) {
       auto rows = torch::tensor({1, 0, 3, 2, 5, 4, 7, 7});
       auto a = torch::zeros({8, 16}).index_add_(0, rows, x);
       auto b = torch::zeros({8, 16}).scatter_add_(0, rows.unsqueeze(1).expand({8, 16}), x);
       auto c = torch::zeros({8, 16}).index_copy_(0, rows.slice(0, 0, 6), x.slice(0, 2, 8));
       auto d = x.clone().index_fill_(0, rows.slice(0, 0, 2), 0.5);
       auto e = torch::zeros({8, 16}).scatter_(1, x.argmax(1, true), x.amax(1, true));
       return a + b + c + d + e;
     }},
    {"masked_scatter",
     [](Tensor x) {
       auto mask = torch::arange(16).fmod(2).eq(0).expand({8, 16});
       return x.clone().masked_scatter_(mask, x.flip(0));
     }},
    {"shape_changed_in_place",
     [](Tensor x) {
       auto y = x.clone();
       y.t_();
       y.mul_(2);
       y.unsqueeze_(0);
       y.transpose_(1, 2);
       y.squeeze_(0);
       return y + x;
     }},
    {"tensor_added_to_itself",
     [](Tensor x) {
       auto y = x * 1;
       y += y;
       y.copy_(y.flip(0));
       return y;
     }},
    {"cumulative_operator", [](Tensor x) { return (x * 1).cumsum_(1); }},
    {"written_through_a_detached_alias",
     [](Tensor x) {
       x.detach().mul_(0.5);
       return x * 2;
     }},
    {"written_through_data",
     [](Tensor x) {
       x.data().slice(0, 0, 4).clamp_(-0.5, 0.5);
       return x * 2;
     }},
    {"out_variants_without_gradients",
     [](Tensor x) {
       auto scale = torch::empty({8, 16});
       {
         torch::NoGradGuard no_grad;
         torch::mul_out(scale, x, x);
         torch::sigmoid_out(scale, scale);
       }
       return x * scale;
     }},
    {"in_place_on_a_tensor_without_gradients_that_then_gets_one",
     [](Tensor x) {
       auto y = torch::ones({8, 16});
       y.add_(1);
       y.mul_(x);
       return y;
     }},
    {"gradient_of_an_overwritten_part_is_zero",
     [](Tensor x) {
       auto y = x * 3;
       y.slice(0, 0, 4).zero_();
       return y;
     }},
    {"swapped_halves",
     [](Tensor x) {
       auto y = x * 1;
       auto left = y.slice(1, 0, 8).clone();
       y.slice(1, 0, 8).copy_(y.slice(1, 8, 16));
       y.slice(1, 8, 16).copy_(left);
       return y;
     }},
    {"logical_and_integer_operators",
     [](Tensor x) {
       auto mask = torch::zeros({8, 16}, torch::kBool);
       mask.slice(1, 0, 8).fill_(true);
       mask.logical_xor_(x.detach() > 0);
       mask &= torch::ones({8, 16}, torch::kBool);
       auto count = torch::zeros({8, 1}, torch::kLong);
       count += mask.sum(1, true);
       return x * mask / count.add_(1);
     }},
};

INSTANTIATE_TEST_SUITE_P(Flavours, InPlace, testing::ValuesIn(kFlavours),
                         [](const auto& info) { return info.param.name; });

// The recording must not leave its mark on the batch, else the first step would do this twice.
TEST(InPlaceOn, TheBatchItself) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          Tensor x = batch[0];
          x.sub_(0.5).div_(0.5);
          return cross_entropy(net->forward(x), batch[1]);
        });
      },
      batch, bit_equal()));
}

TEST(InPlaceOn, ABuffer) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::RunningMean>(8, 16, 4);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      batch, bit_equal()));
}

// A parameter that the forward pass changes: nn::Embedding with max_norm renormalises its rows.
TEST(InPlaceOn, TheRowsOfAnEmbeddingWithMaxNorm) {
  EXPECT_TRUE(parity(
      [] {
        auto words = torch::nn::Embedding(torch::nn::EmbeddingOptions(30, 8).max_norm(1.0));
        auto head = torch::nn::Linear(8, 4);
        auto net = torch::nn::Sequential(words, head).ptr();
        return program(net, sgd(*net, 0.5), [words, head](const Batch& batch) mutable {
          return cross_entropy(head(words(batch[0]).mean(1)), batch[1]);
        });
      },
      [](int) {
        return Batch{classes(30, {8, 5}), classes(4, {8})};
      },
      bit_equal()));
}

TEST(InPlaceOn, AParameterUnderNoGrad) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          {
            torch::NoGradGuard no_grad;
            auto weight = net->layers[0]->as<torch::nn::Linear>()->weight;
            weight.div_(weight.norm(2, 1, true));
          }
          return cross_entropy(net->forward(batch[0]), batch[1]);
        });
      },
      batch, bit_equal()));
}

// A counter that the step function closes over and no module knows.
TEST(InPlaceOn, ATensorThatTheStepClosesOver) {
  std::vector<Tensor> counters;
  EXPECT_TRUE(parity(
      [&] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        auto counter = torch::ones({});
        counters.push_back(counter);
        return program(net, sgd(*net, 0.1), [=](const Batch& batch) mutable {
          counter += 1;
          return cross_entropy(net->forward(batch[0]), batch[1]) / counter;
        });
      },
      batch, bit_equal()));
  EXPECT_EQ(counters[0].item<float>(), counters[1].item<float>());
}

}  // namespace
}  // namespace epl::parity
