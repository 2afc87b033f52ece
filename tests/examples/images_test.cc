// The pictures of examples/resnet: files as they come, and what a loader makes of them.
#include "examples/resnet/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A folder of its own that is gone after the test.
class ImageFiles : public testing::Test {
 protected:
  ImageFiles() {
    std::string name = (fs::temp_directory_path() / "epl_images_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ImageFiles() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  fs::path folder_;
};

// Red on the left, blue on the right: uint8 [3, 16, 32].
torch::Tensor two_colors() {
  torch::Tensor pixels = torch::zeros({3, 16, 32}, torch::kUInt8);
  pixels[0].narrow(1, 0, 16).fill_(200);
  pixels[2].narrow(1, 16, 16).fill_(100);
  return pixels;
}

// `format` is one of turbojpeg's, of as many bytes a pixel as `rows` has in its last dimension.
std::string jpeg_of(const torch::Tensor& rows, int format, int subsampling) {
  const tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: turbojpeg's own type
  const int status =
      tjCompress2(encoder, rows.data_ptr<uint8_t>(), static_cast<int>(rows.size(1)), 0,
                  static_cast<int>(rows.size(0)), format, &bytes, &size, subsampling, 95, 0);
  EXPECT_EQ(status, 0) << tjGetErrorStr2(encoder);
  std::string text(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(encoder);
  return text;
}

std::string jpeg() {
  return jpeg_of(two_colors().permute({1, 2, 0}).contiguous(), TJPF_RGB, TJSAMP_444);
}

std::string png_of(const torch::Tensor& rows, uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<uint32_t>(rows.size(1));
  image.height = static_cast<uint32_t>(rows.size(0));
  image.format = format;
  std::string bytes(1 << 16, '\0');
  png_alloc_size_t size = bytes.size();
  EXPECT_NE(png_image_write_to_memory(&image, bytes.data(), &size, 0, rows.data_ptr(), 0, nullptr),
            0);
  return bytes.substr(0, size);
}

std::string png() { return png_of(two_colors().permute({1, 2, 0}).contiguous(), PNG_FORMAT_RGB); }

std::string error_of_reading(const fs::path& path) {
  try {
    read_image(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

int64_t worst_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kInt64) - b.to(torch::kInt64)).abs().max().item<int64_t>();
}

TEST_F(ImageFiles, AreReadWhateverTheirNamesSay) {
  EXPECT_LE(worst_difference(read_image(write("a.jpg", jpeg())), two_colors()), 8);
  EXPECT_LE(worst_difference(read_image(write("b.png", jpeg())), two_colors()), 8);
  EXPECT_TRUE(torch::equal(read_image(write("c.JPEG", png())), two_colors()));
}

TEST_F(ImageFiles, AreReadAsThreeColorsWhateverTheyHold) {
  const torch::Tensor grey = torch::full({4, 4, 1}, 77, torch::kUInt8);
  const torch::Tensor three = torch::full({3, 4, 4}, 77, torch::kUInt8);
  EXPECT_TRUE(torch::equal(read_image(write("grey.png", png_of(grey, PNG_FORMAT_GRAY))), three));
  EXPECT_LE(
      worst_difference(read_image(write("grey.jpg", jpeg_of(grey, TJPF_GRAY, TJSAMP_GRAY))), three),
      2);
  // Inverted inks: 255 * 128 / 255 of each colour.
  torch::Tensor inks = torch::full({16, 16, 4}, 255, torch::kUInt8);
  inks.select(2, 3).fill_(128);
  EXPECT_LE(worst_difference(read_image(write("inks.jpg", jpeg_of(inks, TJPF_CMYK, TJSAMP_444))),
                             torch::full({3, 16, 16}, 128, torch::kUInt8)),
            4);
  const torch::Tensor nothing = torch::zeros({4, 4, 4}, torch::kUInt8);  // transparent
  EXPECT_TRUE(torch::equal(read_image(write("clear.png", png_of(nothing, PNG_FORMAT_RGBA))),
                           torch::full({3, 4, 4}, 255, torch::kUInt8)));
}

TEST_F(ImageFiles, ThatAreDamagedAreNamed) {
  const std::string begin = "cannot read the image " + folder_.string();
  EXPECT_THAT(error_of_reading(write("cut.jpg", jpeg().substr(0, 400))),
              HasSubstr(begin + "/cut.jpg: "));
  EXPECT_THAT(error_of_reading(write("head.jpg", "\xff\xd8")), HasSubstr(begin + "/head.jpg: "));
  EXPECT_THAT(error_of_reading(write("cut.png", png().substr(0, 60))),
              HasSubstr(begin + "/cut.png: "));
  EXPECT_EQ(error_of_reading(write("empty.png", "")),
            begin + "/empty.png: it is neither a JPEG nor a PNG file");
  EXPECT_EQ(error_of_reading(write("text.jpg", "not a picture")),
            begin + "/text.jpg: it is neither a JPEG nor a PNG file");
  EXPECT_EQ(error_of_reading(folder_ / "absent.jpg"), begin + "/absent.jpg: it cannot be opened");
}

TEST_F(ImageFiles, AreLabelledByTheSortedNamesOfTheirFolders) {
  write("dogs/2.jpg", jpeg());
  write("dogs/deeper/1.PNG", png());
  write("dogs/notes.txt", "no picture");
  write("cats/9.jpeg", jpeg());
  write("readme.txt", "no class");
  const ImageFolder images(folder_);
  EXPECT_EQ(images.names, (std::vector<std::string>{"cats", "dogs"}));
  ASSERT_EQ(images.size(), 3);
  EXPECT_EQ(images.files[0].first.filename(), "9.jpeg");
  EXPECT_EQ(images.label(0), 0);
  EXPECT_EQ(images.label(1), 1);
  EXPECT_EQ(images.label(2), 1);
  EXPECT_EQ(images.pixels(2).sizes(), two_colors().sizes());
}

TEST_F(ImageFiles, AreMissedByName) {
  const auto error_of_folder = [](const fs::path& path) -> std::string {
    try {
      ImageFolder images(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of_folder(folder_ / "absent"), folder_.string() + "/absent is no folder");
  EXPECT_EQ(error_of_folder(folder_), folder_.string() + " has no sub-folders, one for each class");
  write("cats/notes.txt", "no picture");
  EXPECT_EQ(error_of_folder(folder_), folder_.string() + "/cats has no JPEG or PNG files");
}

struct Pattern : ImageSource {
  int64_t size() const override { return 20; }
  int64_t classes() const override { return 2; }
  int64_t label(int64_t index) const override { return index % 2; }
  torch::Tensor pixels(int64_t) const override { return two_colors(); }
};

TEST(Images, AreCutOutAnewInEachEpochAndTheSameForAllReaders) {
  const auto epoch = std::make_shared<std::atomic<size_t>>(0);
  const auto source = std::make_shared<Pattern>();
  Images one = Images(source, 8).augment(0.3, epoch);
  Images other = Images(source, 8).augment(0.3, epoch);
  const torch::Tensor first = one.get(3).data;
  EXPECT_EQ(first.sizes(), torch::IntArrayRef({3, 8, 8}));
  EXPECT_TRUE(torch::equal(first, other.get(3).data));
  *epoch = 1;
  EXPECT_FALSE(torch::equal(first, one.get(3).data));
  EXPECT_EQ(one.get(3).target.item<int64_t>(), 1);
}

TEST(Images, OfTestsAreTheMiddleSquare) {
  const torch::Tensor input = Images(std::make_shared<Pattern>(), 16).get(0).data;
  EXPECT_TRUE(torch::equal(input, two_colors().narrow(2, 8, 16).div(127.5).sub(1)));
}

TEST(Images, AreHeldOutForTestsOnce) {
  const auto source = std::make_shared<Pattern>();
  EXPECT_EQ(Subset(source, 10, Subset::kHeldOut).rows, (std::vector<int64_t>{9, 19}));
  EXPECT_EQ(Subset(source, 10, Subset::kRest).size(), 18);
}

TEST(RandomCrop, StaysInsideOfPicturesOfAnyShape) {
  std::mt19937_64 random(0);
  for (const auto& [height, width] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 50}, {50, 1}, {37, 64}}) {
    for (int i = 0; i < 200; ++i) {
      const Crop crop = random_crop(height, width, 0.2, random);
      EXPECT_TRUE(crop.height >= 1 && crop.width >= 1);
      EXPECT_TRUE(crop.top >= 0 && crop.top + crop.height <= height);
      EXPECT_TRUE(crop.left >= 0 && crop.left + crop.width <= width);
    }
  }
}

}  // namespace
