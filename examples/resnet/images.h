// Labelled pictures from memory or from folders, and what a network sees of them.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "examples/fashion_mnist.h"
#include "image_file.h"

// Read by several threads of a loader at once.
struct ImageSource {
  virtual ~ImageSource() = default;
  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  virtual int64_t label(int64_t index) const = 0;
  virtual torch::Tensor pixels(int64_t index) const = 0;  // uint8 [3, height, width]
};

struct GreyImages : ImageSource {
  explicit GreyImages(LabelledImages images) : data(std::move(images)) {}
  int64_t size() const override { return data.labels.size(0); }
  int64_t classes() const override { return 10; }
  int64_t label(int64_t index) const override { return data.labels[index].item<int64_t>(); }
  torch::Tensor pixels(int64_t index) const override {
    return data.images[index].unsqueeze(0).expand({3, -1, -1});
  }
  LabelledImages data;
};

// One sub-folder a class, numbered in the order of their names; the JPEG and PNG files anywhere
// below a sub-folder are the pictures of its class.
struct ImageFolder : ImageSource {
  explicit ImageFolder(const std::filesystem::path& folder) {
    namespace fs = std::filesystem;
    if (!fs::is_directory(folder)) throw std::runtime_error(folder.string() + " is no folder");
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    if (names.empty()) {
      throw std::runtime_error(folder.string() + " has no sub-folders, one for each class");
    }
    for (size_t label = 0; label < names.size(); ++label) {
      std::vector<fs::path> paths;
      for (const auto& entry : fs::recursive_directory_iterator(folder / names[label])) {
        if (entry.is_regular_file() && is_image(entry.path())) paths.push_back(entry.path());
      }
      if (paths.empty()) {
        throw std::runtime_error((folder / names[label]).string() + " has no JPEG or PNG files");
      }
      std::sort(paths.begin(), paths.end());
      for (const fs::path& path : paths) files.emplace_back(path, static_cast<int64_t>(label));
    }
  }

  int64_t size() const override { return static_cast<int64_t>(files.size()); }
  int64_t classes() const override { return static_cast<int64_t>(names.size()); }
  int64_t label(int64_t index) const override { return files.at(index).second; }
  torch::Tensor pixels(int64_t index) const override { return read_image(files.at(index).first); }

  static bool is_image(const std::filesystem::path& path) {
    std::string end = path.extension().string();
    std::transform(end.begin(), end.end(), end.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return end == ".jpg" || end == ".jpeg" || end == ".png";
  }

  std::vector<std::string> names;                                // of the classes
  std::vector<std::pair<std::filesystem::path, int64_t>> files;  // with their labels
};

// Every `one_in`-th picture of a source, or all others: a test set where none is given.
struct Subset : ImageSource {
  enum Part { kHeldOut, kRest };
  Subset(std::shared_ptr<const ImageSource> images, int64_t one_in, Part part)
      : source(std::move(images)) {
    for (int64_t i = 0; i < source->size(); ++i) {
      if ((i % one_in == one_in - 1) == (part == kHeldOut)) rows.push_back(i);
    }
  }
  int64_t size() const override { return static_cast<int64_t>(rows.size()); }
  int64_t classes() const override { return source->classes(); }
  int64_t label(int64_t index) const override { return source->label(rows.at(index)); }
  torch::Tensor pixels(int64_t index) const override { return source->pixels(rows.at(index)); }

  std::shared_ptr<const ImageSource> source;
  std::vector<int64_t> rows;
};

struct Crop {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

inline Crop middle_square(int64_t height, int64_t width) {
  const int64_t side = std::min(height, width);
  return {(height - side) / 2, (width - side) / 2, side, side};
}

// At least `min_area` of the picture, 3:4 to 4:3 wide; the middle square where chance finds none.
inline Crop random_crop(int64_t height, int64_t width, double min_area, std::mt19937_64& random) {
  std::uniform_real_distribution<double> area(min_area, 1);
  std::uniform_real_distribution<double> log_ratio(std::log(3.0 / 4), std::log(4.0 / 3));
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double pixels = area(random) * static_cast<double>(height * width);
    const double ratio = std::exp(log_ratio(random));
    const int64_t crop_width = std::llround(std::sqrt(pixels * ratio));
    const int64_t crop_height = std::llround(std::sqrt(pixels / ratio));
    if (crop_width < 1 || crop_height < 1 || crop_width > width || crop_height > height) continue;
    const auto place = [&](int64_t room) {
      return std::uniform_int_distribution<int64_t>(0, room)(random);
    };
    return {place(height - crop_height), place(width - crop_width), crop_height, crop_width};
  }
  return middle_square(height, width);
}

// What the network sees: float [3, side, side] around zero.
inline torch::Tensor network_input(const torch::Tensor& pixels, const Crop& crop, int64_t side,
                                   bool flip) {
  torch::Tensor image = pixels.narrow(1, crop.top, crop.height).narrow(2, crop.left, crop.width);
  image = torch::_upsample_bilinear2d_aa(image.to(torch::kFloat32).unsqueeze(0), {side, side},
                                         /*align_corners=*/false)[0];
  if (flip) image = image.flip(2);
  return image.div(127.5).sub(1);
}

// The data set of a loader. Training pictures are cut and mirrored at random: how follows from the
// seed, the epoch and the picture alone, whichever worker or thread reads it.
struct Images : torch::data::datasets::Dataset<Images> {
  Images(std::shared_ptr<const ImageSource> images, int64_t input_side)
      : source(std::move(images)), side(input_side) {}

  Images& augment(double smallest_area, std::shared_ptr<const std::atomic<size_t>> current_epoch) {
    min_area = smallest_area;
    epoch = std::move(current_epoch);
    return *this;
  }

  torch::data::Example<> get(size_t index) override {
    const torch::Tensor pixels = source->pixels(static_cast<int64_t>(index));
    Crop crop = middle_square(pixels.size(1), pixels.size(2));
    bool flip = false;
    if (epoch) {
      std::seed_seq seed{size_t{1}, epoch->load(), index};
      std::mt19937_64 random(seed);
      crop = random_crop(pixels.size(1), pixels.size(2), min_area, random);
      flip = random() % 2 == 1;
    }
    return {network_input(pixels, crop, side, flip),
            torch::tensor(source->label(static_cast<int64_t>(index)))};
  }

  torch::optional<size_t> size() const override { return static_cast<size_t>(source->size()); }

  std::shared_ptr<const ImageSource> source;  // shared by the copies of a loader's threads
  int64_t side;
  double min_area = 1;
  std::shared_ptr<const std::atomic<size_t>>
      epoch;  // set by the thread that trains; else no chance
};
