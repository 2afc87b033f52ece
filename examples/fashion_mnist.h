// Fashion-MNIST: 70000 pictures of clothes in 10 classes, 28x28 grey pixels, as IDX files.
//
// An IDX file is: two zero bytes, the type (8: unsigned byte), the number of dimensions, each
// dimension as a big-endian 32 bit number, then the values. Files may be compressed (name.gz).
#pragma once

#include <torch/torch.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// Where the Debian package dataset-fashion-mnist has them.
constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

struct LabelledImages {
  torch::Tensor images;  // uint8 [n, 28, 28]
  torch::Tensor labels;  // int64 [n]
};

inline torch::Tensor read_idx(const std::filesystem::path& path) {
  // zlib reads a file that is not compressed as it stands.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  const auto read = [&](void* to, size_t bytes) {
    if (gzread(file.get(), to, static_cast<unsigned>(bytes)) != static_cast<int>(bytes)) {
      throw std::runtime_error(path.string() + " is damaged or ends too early");
    }
  };

  std::array<uint8_t, 4> head{};
  read(head.data(), head.size());
  if (head[0] != 0 || head[1] != 0 || head[2] != 8) {
    throw std::runtime_error(path.string() + " is not an IDX file of bytes");
  }
  std::vector<int64_t> sizes;
  for (int dim = 0; dim < head[3]; ++dim) {
    std::array<uint8_t, 4> size{};
    read(size.data(), size.size());
    sizes.push_back(int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 | size[3]);
  }
  torch::Tensor values = torch::empty(sizes, torch::kUInt8);
  read(values.data_ptr(), values.nbytes());
  return values;
}

// `part` is "train" (60000) or "t10k" (10000).
inline LabelledImages read_fashion_mnist(const std::filesystem::path& folder,
                                         const std::string& part) {
  const auto read = [&](const std::string& name) {
    std::filesystem::path path = folder / (part + name);
    return read_idx(std::filesystem::exists(path) ? path : path += ".gz");
  };
  LabelledImages data{read("-images-idx3-ubyte"), read("-labels-idx1-ubyte").to(torch::kInt64)};
  if (data.images.dim() != 3 || data.images.size(1) != 28 || data.images.size(2) != 28 ||
      data.labels.dim() != 1 || data.labels.size(0) != data.images.size(0)) {
    throw std::runtime_error("the files in " + folder.string() + " are not (Fashion-)MNIST");
  }
  return data;
}

// Stands in where the files are absent: ten random patterns, each shifted and covered by noise.
inline LabelledImages generate_images(int64_t count, uint64_t seed) {
  auto random = torch::make_generator<at::CPUGeneratorImpl>(/*seed_in=*/0);
  const torch::Tensor coarse = torch::rand({10, 1, 7, 7}, random);
  const torch::Tensor patterns =
      torch::nn::functional::interpolate(coarse, torch::nn::functional::InterpolateFuncOptions()
                                                     .size(std::vector<int64_t>{28, 28})
                                                     .mode(torch::kBilinear)
                                                     .align_corners(false));

  random.set_current_seed(
      seed);  // The patterns are the same for training and test, the rest is not.
  const torch::Tensor labels = torch::randint(10, {count}, random, torch::kInt64);
  const torch::Tensor shifts = torch::randint(-3, 4, {count, 2}, random, torch::kInt64);
  const torch::Tensor noise = torch::randn({count, 28, 28}, random);
  torch::Tensor images = patterns.squeeze(1).index_select(0, labels);
  for (int64_t i = 0; i < count; ++i) {
    images[i] =
        images[i].roll({shifts[i][0].item<int64_t>(), shifts[i][1].item<int64_t>()}, {0, 1});
  }
  images = (images + 0.5 * noise).clamp(0, 1).mul(255);
  return {images.to(torch::kUInt8), labels};
}
