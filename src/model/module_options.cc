#include "model/module_options.h"

#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/upsampling.h>

#include <cstring>

namespace epl {
namespace {

// Hands the module to `look` where it is of one of the classes.
template <typename... Classes, typename Look>
void where_it_is(const torch::nn::Module& module, const Look& look) {
  const auto try_one = [&](const auto* of_class) {
    if (of_class != nullptr) look(*of_class);
  };
  (try_one(dynamic_cast<const Classes*>(&module)), ...);
}

int64_t bits_of(double number) {
  int64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

}  // namespace

void ModuleOptions::add(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  const auto note = [&](const auto&... numbers) { (numbers_.emplace_back(&numbers), ...); };
  where_it_is<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
              nn::FeatureAlphaDropoutImpl>(
      module, [&](const auto& drop) { note(drop.options.p(), drop.options.inplace()); });
  where_it_is<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl,
              nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl>(module, [&](const auto& norm) {
    note(norm.options.eps(), norm.options.momentum(), norm.options.track_running_stats());
  });
  where_it_is<nn::LayerNormImpl, nn::GroupNormImpl>(
      module, [&](const auto& norm) { note(norm.options.eps()); });
  where_it_is<nn::LocalResponseNormImpl>(module, [&](const auto& norm) {
    note(norm.options.size(), norm.options.alpha(), norm.options.beta(), norm.options.k());
  });
  where_it_is<nn::EmbeddingImpl, nn::EmbeddingBagImpl>(module, [&](const auto& table) {
    note(table.options.max_norm(), table.options.norm_type(), table.options.scale_grad_by_freq());
  });
  // Their forward() reads the dropout of the base class's options.
  where_it_is<nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl>(
      module, [&](const auto& layers) { note(layers.options_base.dropout()); });
  where_it_is<nn::MultiheadAttentionImpl>(
      module, [&](const auto& attention) { note(attention.options.dropout()); });
  where_it_is<nn::LeakyReLUImpl>(module,
                                 [&](const auto& unit) { note(unit.options.negative_slope()); });
  where_it_is<nn::ELUImpl, nn::CELUImpl>(module,
                                         [&](const auto& unit) { note(unit.options.alpha()); });
  where_it_is<nn::HardtanhImpl>(
      module, [&](const auto& unit) { note(unit.options.min_val(), unit.options.max_val()); });
  where_it_is<nn::RReLUImpl>(
      module, [&](const auto& unit) { note(unit.options.lower(), unit.options.upper()); });
  where_it_is<nn::HardshrinkImpl, nn::SoftshrinkImpl>(
      module, [&](const auto& unit) { note(unit.options.lambda()); });
  where_it_is<nn::SoftplusImpl>(
      module, [&](const auto& unit) { note(unit.options.beta(), unit.options.threshold()); });
  where_it_is<nn::ThresholdImpl>(
      module, [&](const auto& unit) { note(unit.options.threshold(), unit.options.value()); });
  where_it_is<nn::SoftmaxImpl, nn::LogSoftmaxImpl, nn::SoftminImpl, nn::GLUImpl>(
      module, [&](const auto& unit) { note(unit.options.dim()); });
  add_loss(module);
  add_window(module);
  add_resizing(module);
}

void ModuleOptions::add_window(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  const auto note = [&](const auto&... numbers) { (numbers_.emplace_back(&numbers), ...); };
  where_it_is<nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl,
              nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl>(module, [&](const auto& window) {
    note_array(window.options.stride());
    note_array(window.options.dilation());
    note_array(window.options.output_padding());
    note(window.options.padding(), window.options.groups());
  });
  where_it_is<nn::MaxPool1dImpl, nn::MaxPool2dImpl, nn::MaxPool3dImpl, nn::AvgPool1dImpl,
              nn::AvgPool2dImpl, nn::AvgPool3dImpl>(module, [&](const auto& window) {
    note_array(window.options.kernel_size());
    note_array(window.options.stride());
    note_array(window.options.padding());
    note(window.options.ceil_mode());
  });
  where_it_is<nn::MaxPool1dImpl, nn::MaxPool2dImpl, nn::MaxPool3dImpl>(
      module, [&](const auto& window) { note_array(window.options.dilation()); });
  where_it_is<nn::AvgPool1dImpl, nn::AvgPool2dImpl, nn::AvgPool3dImpl>(
      module, [&](const auto& window) { note(window.options.count_include_pad()); });
}

void ModuleOptions::add_resizing(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  const auto note = [&](const auto&... numbers) { (numbers_.emplace_back(&numbers), ...); };
  where_it_is<nn::AdaptiveAvgPool1dImpl, nn::AdaptiveAvgPool2dImpl, nn::AdaptiveAvgPool3dImpl,
              nn::AdaptiveMaxPool1dImpl, nn::AdaptiveMaxPool2dImpl, nn::AdaptiveMaxPool3dImpl>(
      module, [&](const auto& pool) { note_array(pool.options.output_size()); });
  where_it_is<nn::LPPool1dImpl, nn::LPPool2dImpl>(module, [&](const auto& pool) {
    note_array(pool.options.kernel_size());
    note_array(pool.options.stride());
    note(pool.options.norm_type(), pool.options.ceil_mode());
  });
  where_it_is<nn::UpsampleImpl>(module, [&](const auto& up) {
    note(up.options.size(), up.options.scale_factor(), up.options.mode(),
         up.options.align_corners());
  });
  where_it_is<nn::PixelShuffleImpl>(module,
                                    [&](const auto& up) { note(up.options.upscale_factor()); });
  where_it_is<nn::ReflectionPad1dImpl, nn::ReflectionPad2dImpl, nn::ReplicationPad1dImpl,
              nn::ReplicationPad2dImpl, nn::ReplicationPad3dImpl, nn::ZeroPad2dImpl,
              nn::ConstantPad1dImpl, nn::ConstantPad2dImpl, nn::ConstantPad3dImpl>(
      module, [&](const auto& pad) { note_array(pad.options.padding()); });
  where_it_is<nn::ConstantPad1dImpl, nn::ConstantPad2dImpl, nn::ConstantPad3dImpl>(
      module, [&](const auto& pad) { note(pad.options.value()); });
}

void ModuleOptions::add_loss(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  const auto note = [&](const auto&... numbers) { (numbers_.emplace_back(&numbers), ...); };
  where_it_is<nn::L1LossImpl, nn::KLDivLossImpl, nn::MSELossImpl, nn::BCELossImpl,
              nn::HingeEmbeddingLossImpl, nn::MultiMarginLossImpl, nn::CosineEmbeddingLossImpl,
              nn::SmoothL1LossImpl, nn::HuberLossImpl, nn::MultiLabelMarginLossImpl,
              nn::SoftMarginLossImpl, nn::MultiLabelSoftMarginLossImpl, nn::TripletMarginLossImpl,
              nn::TripletMarginWithDistanceLossImpl, nn::CTCLossImpl, nn::PoissonNLLLossImpl,
              nn::MarginRankingLossImpl, nn::NLLLossImpl, nn::CrossEntropyLossImpl,
              nn::BCEWithLogitsLossImpl>(module,
                                         [&](const auto& loss) { note(loss.options.reduction()); });
  where_it_is<nn::HingeEmbeddingLossImpl, nn::CosineEmbeddingLossImpl, nn::MarginRankingLossImpl>(
      module, [&](const auto& loss) { note(loss.options.margin()); });
  where_it_is<nn::MultiMarginLossImpl>(
      module, [&](const auto& loss) { note(loss.options.p(), loss.options.margin()); });
  where_it_is<nn::TripletMarginLossImpl>(module, [&](const auto& loss) {
    note(loss.options.margin(), loss.options.p(), loss.options.eps(), loss.options.swap());
  });
  where_it_is<nn::TripletMarginWithDistanceLossImpl>(
      module, [&](const auto& loss) { note(loss.options.margin(), loss.options.swap()); });
  where_it_is<nn::KLDivLossImpl>(module,
                                 [&](const auto& loss) { note(loss.options.log_target()); });
  where_it_is<nn::SmoothL1LossImpl>(module, [&](const auto& loss) { note(loss.options.beta()); });
  where_it_is<nn::HuberLossImpl>(module, [&](const auto& loss) { note(loss.options.delta()); });
  where_it_is<nn::CTCLossImpl>(
      module, [&](const auto& loss) { note(loss.options.blank(), loss.options.zero_infinity()); });
  where_it_is<nn::PoissonNLLLossImpl>(module, [&](const auto& loss) {
    note(loss.options.log_input(), loss.options.full(), loss.options.eps());
  });
  where_it_is<nn::NLLLossImpl, nn::CrossEntropyLossImpl>(
      module, [&](const auto& loss) { note(loss.options.ignore_index()); });
  where_it_is<nn::CrossEntropyLossImpl>(
      module, [&](const auto& loss) { note(loss.options.label_smoothing()); });
}

void ModuleOptions::append_to(std::vector<int64_t>& key) const {
  const auto append_array = [&](const Array& array) {
    key.insert(key.end(), array.begin, array.begin + array.count);
  };
  const auto append_padding = [&](const auto& padding) {
    key.push_back(static_cast<int64_t>(padding.index()));
    if (padding.index() != 0) return;  // kValid, kSame
    using std::get;                    // or c10::get, which LibTorch 1 has for its own variants
    const auto& array = get<0>(padding);
    key.insert(key.end(), array->begin(), array->end());
  };
  const auto append_number = [&](const auto* number) {
    using Type = std::decay_t<decltype(*number)>;
    if constexpr (std::is_same_v<Type, double>) {
      key.push_back(bits_of(*number));
    } else if constexpr (std::is_same_v<Type, Reduction> || std::is_same_v<Type, OfKLDiv> ||
                         std::is_same_v<Type, OfUpsample>) {
      key.push_back(static_cast<int64_t>(number->index()));
    } else {
      key.push_back(static_cast<int64_t>(*number));
    }
  };
  const auto append_optional = [&](const auto& optional) {
    key.push_back(optional.has_value() ? 1 : 0);
    if (optional.has_value()) append_number(&*optional);
  };
  const auto append_several = [&](const auto& numbers) {
    key.push_back(numbers.has_value() ? static_cast<int64_t>(numbers->size()) : -1);
    if (!numbers.has_value()) return;
    for (const auto& number : *numbers) append_number(&number);
  };
  const auto append = [&](const auto& number) {
    using Type = std::decay_t<decltype(number)>;
    if constexpr (std::is_same_v<Type, Array>) {
      append_array(number);
    } else if constexpr (std::is_same_v<Type, Padding<1>> || std::is_same_v<Type, Padding<2>> ||
                         std::is_same_v<Type, Padding<3>>) {
      append_padding(*number);
    } else if constexpr (std::is_same_v<Type, Several<int64_t>> ||
                         std::is_same_v<Type, Several<double>>) {
      append_several(*number);
    } else if constexpr (std::is_same_v<Type, const c10::optional<double>*> ||
                         std::is_same_v<Type, const c10::optional<int64_t>*> ||
                         std::is_same_v<Type, const c10::optional<bool>*>) {
      append_optional(*number);
    } else {
      append_number(number);
    }
  };
  for (const Number& number : numbers_) std::visit(append, number);
}

}  // namespace epl
