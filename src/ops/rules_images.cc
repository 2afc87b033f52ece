// Pooling, resizing, padding and sampling of images, each of which is worked on by itself; channels
// as well, but where they are shuffled.
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// --- all but the places of an image go one to one ---------------------------------------------

std::optional<Pattern> image1d(const Graph& graph, const Node& node) {
  return leading_dims(graph, node, 1);
}
std::optional<Pattern> image2d(const Graph& graph, const Node& node) {
  return leading_dims(graph, node, 2);
}
std::optional<Pattern> image3d(const Graph& graph, const Node& node) {
  return leading_dims(graph, node, 3);
}

// upsample_*_backward(grad, output_size, input_size, ...)
void localize_input_size(const LocalNode& at, Node& local) { set(local, 2, at.output_sizes(0)); }

// fractional_max_pool(self, kernel_size, output_size, random_samples [images, channels, places]):
// one image without a dimension for it has samples with one.
std::optional<Pattern> fractional_pool(const Graph& graph, const Node& node) {
  const size_t places = ints_at(node, 1).size();
  const bool one_image = input_sizes(graph, node, 0).size() == places + 1;
  const std::string word = (one_image ? "c" : "nc") + std::string(places, '1');
  return Pattern{{word, one_image ? "1c1" : "nc1"}, {word, word}, "", ""};
}

// --- channels and places that change their roles ----------------------------------------------

// im2col(self [n, c, y, x]) -> [n, c * patch, patches], and col2im back: the elements of a patch
// stand behind their channel. One image may come without `n`.
std::optional<Pattern> patches(const Graph& graph, const Node& node) {
  const auto word_of = [&](ValueId id, size_t behind) {
    const bool one_image = sizes_of(graph, id).size() == behind + 1;
    return (one_image ? "c" : "nc") + std::string(behind, '1');
  };
  const bool apart = op_name(node) == "aten::im2col";
  return one_to_one(word_of(tensor_at(node, 0), apart ? 2 : 1),
                    word_of(outputs_of(node)[0], apart ? 1 : 2));
}

// [..., c * r * r, y, x] and [..., c, y * r, x * r]: what is shuffled stands behind what is cut.
std::optional<Pattern> shuffled_pixels(const Graph& graph, const Node& node) {
  const std::string word = letters(input_sizes(graph, node, 0).size());
  return one_to_one(word, word);
}

std::optional<Pattern> shuffled_channels(const Graph& graph, const Node& node) {
  const std::string word = with_whole(letters(input_sizes(graph, node, 0).size()), 1);
  return one_to_one(word, word);
}

}  // namespace

Rules image_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  constexpr Wants kDense = Wants::kDense;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand, wants
      {"aten::max_pool2d_with_indices", in_widest().seconds_each(6e-9), "", "", kNo, image2d,
       nullptr, nullptr, kDense},
      {"aten::max_pool2d_with_indices_backward", in_widest(), "", "", kFirst, image2d, nullptr,
       nullptr, kDense},
      {"aten::max_pool3d_with_indices", in_float32(), "", "", kNo, image3d, nullptr, nullptr,
       kDense},
      {"aten::max_pool3d_with_indices_backward", in_float32(), "", "", kFirst, image3d, nullptr,
       nullptr, kDense},
      {"aten::adaptive_max_pool2d", in_widest(), "", "", kNo, image2d, nullptr, nullptr, kDense},
      {"aten::adaptive_max_pool2d_backward", in_widest(), "", "", kFirst, image2d, nullptr, nullptr,
       kDense},
      {"aten::adaptive_max_pool3d", in_float32(), "", "", kNo, image3d, nullptr, nullptr, kDense},
      {"aten::adaptive_max_pool3d_backward", in_float32(), "", "", kFirst, image3d, nullptr,
       nullptr, kDense},
      {"aten::fractional_max_pool2d", in_float32(), "", "", kNo, fractional_pool, nullptr, nullptr,
       kDense},
      {"aten::fractional_max_pool2d_backward", in_float32(), "", "", kFirst, image2d, nullptr,
       nullptr, kDense},
      {"aten::fractional_max_pool3d", in_float32(), "", "", kNo, fractional_pool, nullptr, nullptr,
       kDense},
      {"aten::fractional_max_pool3d_backward", in_float32(), "", "", kFirst, image3d, nullptr,
       nullptr, kDense},
      {"aten::max_unpool2d", in_float32(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::max_unpool3d", in_float32(), "", "", kFirst, image3d, nullptr, nullptr, kDense},
      {"aten::avg_pool2d", in_widest(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::avg_pool2d_backward", in_widest(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::avg_pool3d", in_float32(), "", "", kFirst, image3d, nullptr, nullptr, kDense},
      {"aten::avg_pool3d_backward", in_float32(), "", "", kFirst, image3d, nullptr, nullptr,
       kDense},
      {"aten::_adaptive_avg_pool2d", in_widest(), "", "", kFirst, image2d, nullptr, nullptr,
       kDense},
      {"aten::_adaptive_avg_pool2d_backward", in_widest(), "", "", kFirst, image2d, nullptr,
       nullptr, kDense},
      {"aten::_adaptive_avg_pool3d", in_float32(), "", "", kFirst, image3d, nullptr, nullptr,
       kDense},
      {"aten::_adaptive_avg_pool3d_backward", in_float32(), "", "", kFirst, image3d, nullptr,
       nullptr, kDense},

      {"aten::upsample_nearest1d", in_widest(), "", "", kFirst, image1d, nullptr, nullptr, kDense},
      {"aten::upsample_nearest1d_backward", in_widest(), "", "", kFirst, image1d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_nearest2d", in_widest(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::upsample_nearest2d_backward", in_widest(), "", "", kFirst, image2d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_nearest3d", in_widest(), "", "", kFirst, image3d, nullptr, nullptr, kDense},
      {"aten::upsample_nearest3d_backward", in_widest(), "", "", kFirst, image3d,
       localize_input_size, nullptr, kDense},
      {"aten::_upsample_nearest_exact1d", in_widest(), "", "", kFirst, image1d, nullptr, nullptr,
       kDense},
      {"aten::_upsample_nearest_exact1d_backward", in_widest(), "", "", kFirst, image1d,
       localize_input_size, nullptr, kDense},
      {"aten::_upsample_nearest_exact2d", in_widest(), "", "", kFirst, image2d, nullptr, nullptr,
       kDense},
      {"aten::_upsample_nearest_exact2d_backward", in_widest(), "", "", kFirst, image2d,
       localize_input_size, nullptr, kDense},
      {"aten::_upsample_nearest_exact3d", in_widest(), "", "", kFirst, image3d, nullptr, nullptr,
       kDense},
      {"aten::_upsample_nearest_exact3d_backward", in_widest(), "", "", kFirst, image3d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_linear1d", in_widest(), "", "", kFirst, image1d, nullptr, nullptr, kDense},
      {"aten::upsample_linear1d_backward", in_widest(), "", "", kFirst, image1d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_bilinear2d", in_widest(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::upsample_bilinear2d_backward", in_widest(), "", "", kFirst, image2d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_trilinear3d", in_widest(), "", "", kFirst, image3d, nullptr, nullptr,
       kDense},
      {"aten::upsample_trilinear3d_backward", in_widest(), "", "", kFirst, image3d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_bicubic2d", in_widest(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::upsample_bicubic2d_backward", in_widest(), "", "", kFirst, image2d,
       localize_input_size, nullptr, kDense},
      {"aten::_upsample_bilinear2d_aa", in_widest(), "", "", kFirst, image2d, nullptr, nullptr,
       kDense},
      {"aten::_upsample_bilinear2d_aa_backward", in_widest(), "", "", kFirst, image2d,
       localize_input_size, nullptr, kDense},
      {"aten::_upsample_bicubic2d_aa", in_widest(), "", "", kFirst, image2d, nullptr, nullptr,
       kDense},
      {"aten::_upsample_bicubic2d_aa_backward", in_widest(), "", "", kFirst, image2d,
       localize_input_size, nullptr, kDense},

      {"aten::reflection_pad1d", in_float32(), "", "", kFirst, image1d, nullptr, nullptr, kDense},
      {"aten::reflection_pad1d_backward", in_float32(), "", "", kFirst, image1d, nullptr, nullptr,
       kDense},
      {"aten::reflection_pad2d", in_float32(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::reflection_pad2d_backward", in_float32(), "", "", kFirst, image2d, nullptr, nullptr,
       kDense},
      {"aten::reflection_pad3d", in_float32(), "", "", kFirst, image3d, nullptr, nullptr, kDense},
      {"aten::reflection_pad3d_backward", in_float32(), "", "", kFirst, image3d, nullptr, nullptr,
       kDense},
      {"aten::replication_pad1d", in_float32(), "", "", kFirst, image1d, nullptr, nullptr, kDense},
      {"aten::replication_pad1d_backward", in_float32(), "", "", kFirst, image1d, nullptr, nullptr,
       kDense},
      {"aten::replication_pad2d", in_float32(), "", "", kFirst, image2d, nullptr, nullptr, kDense},
      {"aten::replication_pad2d_backward", in_float32(), "", "", kFirst, image2d, nullptr, nullptr,
       kDense},
      {"aten::replication_pad3d", in_float32(), "", "", kFirst, image3d, nullptr, nullptr, kDense},
      {"aten::replication_pad3d_backward", in_float32(), "", "", kFirst, image3d, nullptr, nullptr,
       kDense},

      // What a place of the result samples is said by the grid there.
      {"aten::grid_sampler_2d", in_float32(), "nc11, nyx1", "ncyx", kFirst},
      {"aten::grid_sampler_2d_backward", in_float32(), "ncyx, nc11, nyx1", "nc11, nyx1", kFirst},
      {"aten::grid_sampler_3d", in_float32(), "nc111, nzyx1", "nczyx", kFirst},
      {"aten::grid_sampler_3d_backward", in_float32(), "nczyx, nc111, nzyx1", "nc111, nzyx1",
       kFirst},

      {"aten::im2col", in_widest(), "", "", kFirst, patches},
      {"aten::col2im", in_widest(), "", "", kFirst, patches},
      {"aten::pixel_shuffle", in_widest(), "", "", kFirst, shuffled_pixels},
      {"aten::pixel_unshuffle", in_widest(), "", "", kFirst, shuffled_pixels},
      {"aten::native_channel_shuffle", in_widest(), "", "", kFirst, shuffled_channels},
  };
  return rows;
}

}  // namespace epl
