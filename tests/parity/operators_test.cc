// A tour of torch::nn and torch::nn::functional: what lies off the beaten track of the big models.
#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using torch::Tensor;

struct Part {
  const char* name;
  std::function<Tensor(Tensor)> body;  // [8, 16] to [8, 16], between two linear layers
};
void PrintTo(const Part& part, std::ostream* out) { *out << part.name; }

class Operators : public testing::TestWithParam<Part> {};

TEST_P(Operators, TrainAsInThePlainLoop) {
  EXPECT_TRUE(parity(
      [body = GetParam().body] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        return program(net, sgd(*net, 0.05), [net, body](const Batch& batch) {
          auto x = body(net->layers[0]->as<nn::Linear>()->forward(batch[0]));
          return cross_entropy(net->layers[2]->as<nn::Linear>()->forward(x), batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8})};
      },
      bit_equal(), Variant().steps(3)));
}

const Part kParts[] = {
    {"activations",
     [](Tensor x) {
       return torch::gelu(x) + torch::silu(x) + torch::mish(x) + torch::hardswish(x) +
              F::softplus(x) + F::softshrink(x) + F::tanhshrink(x) + F::logsigmoid(x) +
              torch::celu(x) + F::relu6(x) + F::softsign(x) + F::glu(torch::cat({x, x}, 1));
     }},
    {"normalisations",
     [](Tensor x) {
       auto images = x.view({8, 4, 2, 2});
       auto a = F::layer_norm(x, F::LayerNormFuncOptions({16}));
       auto b = F::group_norm(images, F::GroupNormFuncOptions(2));
       auto c = F::instance_norm(images);
       auto d = F::local_response_norm(images, F::LocalResponseNormFuncOptions(2));
       auto e = F::normalize(x, F::NormalizeFuncOptions().dim(1));
       return a + e + (b + c + d).view({8, 16});
     }},
    {"pooling_in_one_dimension",
     [](Tensor x) {
       auto rows = x.unsqueeze(1);
       auto a = F::max_pool1d(rows, F::MaxPool1dFuncOptions(2));
       auto b = F::avg_pool1d(rows, F::AvgPool1dFuncOptions(2));
       auto c = F::adaptive_max_pool1d(rows, F::AdaptiveMaxPool1dFuncOptions(8));
       auto d = F::adaptive_avg_pool1d(rows, F::AdaptiveAvgPool1dFuncOptions(8));
       auto e = F::lp_pool1d(rows.abs() + 1, F::LPPool1dFuncOptions(2, 2));
       return torch::cat({a + b, c + d + e}, 2).squeeze(1);
     }},
    {"pooling_and_unpooling",
     [](Tensor x) {
       auto images = x.view({8, 1, 4, 4});
       auto [pooled, places] =
           F::max_pool2d_with_indices(images, F::MaxPool2dFuncOptions(2).stride(2));
       auto back = F::max_unpool2d(pooled, places, F::MaxUnpool2dFuncOptions(2).stride(2));
       return back.view({8, 16});
     }},
    {"resampling",
     [](Tensor x) {
       auto images = x.view({8, 1, 4, 4});
       auto options = F::InterpolateFuncOptions().size(std::vector<int64_t>{4, 4});
       auto small = F::interpolate(
           images, F::InterpolateFuncOptions().size(std::vector<int64_t>{2, 2}).mode(torch::kArea));
       auto a = F::interpolate(small, options.mode(torch::kNearest));
       auto b = F::interpolate(small, options.mode(torch::kBicubic).align_corners(false));
       auto c = F::pixel_shuffle(x.view({8, 4, 2, 2}), F::PixelShuffleFuncOptions(2));
       auto theta = torch::tensor({1.0, 0.1, 0.0, 0.0, 0.9, 0.1}).view({1, 2, 3}).expand({8, 2, 3});
       auto grid = F::affine_grid(theta.contiguous(), {8, 1, 4, 4}, false);
       auto d = F::grid_sample(images, grid, F::GridSampleFuncOptions().align_corners(false));
       return (a + b + c + d).view({8, 16});
     }},
    {"padding",
     [](Tensor x) {
       auto rows = x.unsqueeze(1);
       auto a = F::pad(rows, F::PadFuncOptions({1, 1}).mode(torch::kReflect));
       auto b = F::pad(rows, F::PadFuncOptions({1, 1}).mode(torch::kReplicate));
       auto c = F::pad(rows, F::PadFuncOptions({2, 0}).mode(torch::kCircular));
       auto d = F::pad(rows, F::PadFuncOptions({0, 2}).mode(torch::kConstant).value(1));
       return (a + b + c + d).slice(2, 1, 17).squeeze(1);
     }},
    {"unfold_and_fold",
     [](Tensor x) {
       auto patches = F::unfold(x.view({8, 1, 4, 4}), F::UnfoldFuncOptions({2, 2}));
       return F::fold(patches * 2, F::FoldFuncOptions({4, 4}, {2, 2})).view({8, 16});
     }},
    {"products",
     [](Tensor x) {
       auto a = torch::einsum("bi,bj->bij", {x, x.slice(1, 0, 4)});
       auto b = torch::bmm(a, a.transpose(1, 2));
       auto c = torch::baddbmm(b, a, a.transpose(1, 2), 0.5, 0.1);
       auto d = torch::tensordot(x, x, {0}, {0});
       auto e = torch::outer(x[0], x[1]) + torch::addr(d, x[2], x[3]);
       return c.sum(2) * 0.1 + torch::matmul(x, d + e) * 0.01 + torch::mv(x, x[0]).unsqueeze(1);
     }},
    {"sorting_and_ranking",
     [](Tensor x) {
       auto a = std::get<0>(x.sort(1));
       auto b = std::get<0>(x.topk(4, 1)).repeat({1, 4});
       auto c = std::get<0>(x.kthvalue(3, 1, true));
       auto d = std::get<0>(x.median(1, true));
       auto e = std::get<0>(x.cummax(1)) + std::get<0>(x.max(1, true));
       return a + b + c + d + e + x.gather(1, std::get<1>(x.sort(1)));
     }},
    {"sums_along_a_dimension",
     [](Tensor x) {
       return x.cumsum(1) + (x * 0.1).cumprod(1) + x.logcumsumexp(1) + x.logsumexp(1, true) +
              x.std(torch::IntArrayRef{1}, true, true) + x.var(torch::IntArrayRef{1}, false, true) +
              x.norm(2, 1, true) + x.prod(1, true) + x.amax({0}, true) + x.mean(0, true) +
              x.abs().sum();
     }},
    {"distances",
     [](Tensor x) {
       auto y = x.flip(0) + 1;
       return torch::cdist(x, y).repeat({1, 2}) + F::cosine_similarity(x, y).unsqueeze(1) +
              F::pairwise_distance(x, y).unsqueeze(1);
     }},
    {"indexing",
     [](Tensor x) {
       auto rows = torch::tensor({3, 1, 4, 1, 5, 2, 6, 5});
       auto a = x.index_select(0, rows);
       auto b = x.index({rows});
       auto c = torch::where(x > 0, x, x * 0.1);
       auto d = x.take(torch::arange(128).view({8, 16}).flip(0));
       auto e = torch::take_along_dim(x, std::get<1>(x.sort(1)), 1);
       auto f = x.index({torch::indexing::Ellipsis, torch::indexing::Slice(0, 16, 2)});
       return a + b + c + d + e + f.repeat_interleave(2, 1);
     }},
    {"rearrangements",
     [](Tensor x) {
       auto a = torch::roll(x, 3, 1) + x.flip({0, 1});
       auto b = torch::cat(x.chunk(4, 1), 1) + torch::stack(x.unbind(0), 0);
       auto c = torch::cat({x.split(6, 1)[2], x.split(6, 1)[0], x.split(6, 1)[1]}, 1);
       auto d = x.view({8, 4, 4}).permute({0, 2, 1}).reshape({8, 16});
       auto e = x.view({8, 4, 4}).rot90(1, {1, 2}).flatten(1);
       auto f = x.slice(1, 0, 4).tile({1, 4}) + x.narrow(1, 0, 1).expand({8, 16});
       auto g = torch::diag_embed(x.slice(1, 0, 4)).view({8, 16});
       auto h = x.view({8, 4, 4}).tril().movedim(1, 2).flatten(1).contiguous();
       return a + b + c + d + e + f + g + h;
     }},
    {"constants_made_in_the_step",
     [](Tensor x) {
       auto positions = torch::arange(16, torch::kFloat).div(16);
       auto weights = torch::linspace(0.5, 1.5, 16) + torch::eye(8, 16) + torch::full({8, 1}, 0.1);
       auto table = torch::tensor({0.5, 1.0, 2.0, 4.0}).repeat({4});
       auto mesh = torch::meshgrid({torch::arange(8.0), torch::arange(16.0)}, "ij");
       return x * weights + positions * table + (mesh[0] - mesh[1]) * 0.01 +
              torch::ones_like(x).triu() + torch::zeros_like(x);
     }},
    {"other_types_in_between",
     [](Tensor x) {
       auto a = (x.to(torch::kDouble) * 3).exp().log1p().to(torch::kFloat);
       auto b = x.to(torch::kBFloat16).to(torch::kFloat);
       auto c = x.ge(0).to(x.dtype()) + x.argmax(1, true).type_as(x) * 0.1;
       return a + b + c;
     }},
    {"part_of_the_gradient_stopped",
     [](Tensor x) {
       Tensor scale;
       {
         torch::NoGradGuard no_grad;
         scale = x.abs().mean(1, true);
       }
       return x / (scale + 1) + x.detach() * 0.1;
     }},
    {"complex_numbers",
     [](Tensor x) {
       auto spectrum = torch::fft_rfft(x);
       auto filtered = spectrum * torch::linspace(1, 0, 9);
       return torch::fft_irfft(filtered, 16) + torch::abs(spectrum).slice(1, 0, 8).repeat({1, 2});
     }},
    {"linear_algebra",
     [](Tensor x) {
       auto matrix = torch::matmul(x, x.t()) * 0.1 + 2 * torch::eye(8);
       auto root = torch::linalg_cholesky(matrix);
       return torch::linalg_solve(matrix, x) + torch::matmul(root, x) * 0.1 +
              torch::logdet(matrix) * 0.1 + torch::matmul(torch::inverse(matrix), x);
     }},
    {"one_hot_of_what_the_net_says",
     [](Tensor x) { return x * F::one_hot(x.argmax(1), 16).to(torch::kFloat) + x; }},
    {"powers_and_logarithms",
     [](Tensor x) {
       auto y = x.abs() + 0.5;
       return y.pow(2) + y.pow(0.5) + y.rsqrt() + y.log() + y.log2() + y.reciprocal() +
              torch::pow(2, x) + torch::atan2(x, y) + torch::erf(x) + torch::expm1(x) +
              torch::hypot(x, y) + torch::fmod(x, 0.7) + torch::maximum(x, -y) + x.round() +
              torch::lerp(x, y, 0.3) + torch::addcmul(x, x, y, 0.1) + torch::clamp(x, -1, 1);
     }},
};

INSTANTIATE_TEST_SUITE_P(Tour, Operators, testing::ValuesIn(kParts),
                         [](const auto& info) { return info.param.name; });

// --- modules with parameters that the big models do not use --------------------------------------

struct Curiosities : nn::Module {
  Curiosities()
      : conv3(nn::Conv3dOptions(1, 2, 3).padding(1)),
        instance(nn::InstanceNorm3dOptions(2).affine(true).track_running_stats(true)),
        conv_transpose(nn::ConvTranspose1dOptions(2, 2, 3).stride(2).padding(1).output_padding(1)),
        grouped(nn::Conv2dOptions(4, 4, 3).padding(1).groups(4).padding_mode(torch::kReflect)),
        prelu(nn::PReLUOptions().num_parameters(4)),
        bilinear(8, 8, 6),
        rnn(nn::RNNOptions(6, 6).nonlinearity(torch::kReLU).batch_first(true)),
        attention(nn::MultiheadAttentionOptions(6, 2)),
        bag(nn::EmbeddingBagOptions(10, 6).mode(torch::kSum)),
        norm(nn::LayerNormOptions({6}).elementwise_affine(true)),
        head(6, 3) {
    register_module("conv3", conv3);
    register_module("instance", instance);
    register_module("conv_transpose", conv_transpose);
    register_module("grouped", grouped);
    register_module("prelu", prelu);
    register_module("bilinear", bilinear);
    register_module("rnn", rnn);
    register_module("attention", attention);
    register_module("bag", bag);
    register_module("norm", norm);
    register_module("head", head);
  }

  // [batch, 1, 4, 4, 4] and word ids [batch, 5].
  Tensor forward(Tensor volumes, Tensor words) {
    auto x = instance(conv3(volumes));
    x = conv_transpose(x.flatten(2).slice(2, 0, 16)).view({-1, 4, 4, 4});
    x = prelu(grouped(x));
    x = x.flatten(1).view({x.size(0), 8, 8});
    x = bilinear(x, x.transpose(1, 2).contiguous());
    x = std::get<0>(rnn->forward(x)).transpose(0, 1);
    x = std::get<0>(attention(x, x, x)).mean(0);
    return head(norm(x + bag(words)));
  }

  nn::Conv3d conv3;
  nn::InstanceNorm3d instance;
  nn::ConvTranspose1d conv_transpose;
  nn::Conv2d grouped;
  nn::PReLU prelu;
  nn::Bilinear bilinear;
  nn::RNN rnn;
  nn::MultiheadAttention attention;
  nn::EmbeddingBag bag;
  nn::LayerNorm norm;
  nn::Linear head;
};

TEST(Modules, ThatTheBigModelsDoNotUse) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<Curiosities>();
        return program(net, sgd(*net, 0.05), [net](const Batch& batch) {
          return cross_entropy(net->forward(batch[0], batch[1]), batch[2]);
        });
      },
      [](int) {
        return Batch{torch::randn({4, 1, 4, 4, 4}), classes(10, {4, 5}), classes(3, {4})};
      },
      bit_equal()));
}

// --- losses
// ---------------------------------------------------------------------------------------

TEST(Losses, AllOfThemSummed) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        return program(net, sgd(*net, 0.02), [net](const Batch& batch) {
          auto x = net->forward(batch[0]);
          auto target = batch[1];
          auto real = batch[2];
          auto signs = real.select(1, 0).sign();
          auto loss = F::mse_loss(x, real) + F::l1_loss(x, real) + F::smooth_l1_loss(x, real) +
                      F::huber_loss(x, real) + F::soft_margin_loss(x, real.sign());
          loss = loss + F::nll_loss(torch::log_softmax(x, 1), target);
          loss = loss + F::kl_div(torch::log_softmax(x, 1), torch::softmax(real, 1),
                                  F::KLDivFuncOptions().reduction(torch::kBatchMean));
          loss = loss + F::binary_cross_entropy_with_logits(x, torch::sigmoid(real));
          loss = loss + F::cross_entropy(x, target,
                                         F::CrossEntropyFuncOptions().label_smoothing(0.1).weight(
                                             torch::tensor({1.0f, 2.0f, 3.0f, 4.0f})));
          loss = loss + F::cross_entropy(x, target,
                                         F::CrossEntropyFuncOptions().label_smoothing(0.1));
          loss = loss + F::cross_entropy(x, torch::softmax(real, 1));
          loss = loss + F::cosine_embedding_loss(x, real, signs);
          loss = loss + F::hinge_embedding_loss(x, real.sign());
          loss = loss + F::margin_ranking_loss(x.select(1, 0), x.select(1, 1), signs);
          loss = loss + F::triplet_margin_loss(x, real, real.flip(0));
          loss = loss + F::multi_margin_loss(x, target);
          loss = loss + F::poisson_nll_loss(x, real.abs());
          loss = loss + F::multilabel_soft_margin_loss(x, real.gt(0).to(torch::kFloat));
          return loss;
        });
      },
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8}), torch::randn({8, 4})};
      },
      bit_equal()));
}

}  // namespace
}  // namespace epl::parity
