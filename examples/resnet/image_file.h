// read_image(): a JPEG or PNG file as pixels. Its first bytes tell which it is, not its name.
#pragma once

#include <png.h>
#include <torch/torch.h>
#include <turbojpeg.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace image_file {

[[noreturn]] inline void fail(const std::filesystem::path& path, const std::string& why) {
  throw std::runtime_error("cannot read the image " + path.string() + ": " + why);
}

inline torch::Tensor channels_first(const torch::Tensor& pixels) {
  return pixels.permute({2, 0, 1}).contiguous();
}

// A decoder's complaint that still leaves a whole picture, such as stray bytes between markers.
inline bool harmless(tjhandle decoder) {
  return tjGetErrorCode(decoder) == TJERR_WARNING &&
         std::strstr(tjGetErrorStr2(decoder), "Premature end") == nullptr;
}

inline torch::Tensor decode_jpeg(const std::vector<uint8_t>& bytes,
                                 const std::filesystem::path& path) {
  const std::unique_ptr<void, int (*)(tjhandle)> owner(tjInitDecompress(), tjDestroy);
  const tjhandle decoder = owner.get();
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colors = 0;
  const auto check = [&](int status) {
    if (status != 0 && !harmless(decoder)) fail(path, tjGetErrorStr2(decoder));
  };
  check(tjDecompressHeader3(decoder, bytes.data(), bytes.size(), &width, &height, &subsampling,
                            &colors));
  // Pictures made for print have four inks, which the decoder does not turn into RGB. Adobe's
  // files, and so nearly all, hold them inverted: paper is 255.
  const bool inks = colors == TJCS_CMYK || colors == TJCS_YCCK;
  torch::Tensor pixels = torch::empty({height, width, inks ? 4 : 3}, torch::kUInt8);
  check(tjDecompress2(decoder, bytes.data(), bytes.size(), pixels.data_ptr<uint8_t>(), width,
                      /*pitch=*/0, height, inks ? TJPF_CMYK : TJPF_RGB, /*flags=*/0));
  if (inks) {
    const torch::Tensor wide = pixels.to(torch::kInt32);
    pixels = (wide.narrow(2, 0, 3) * wide.narrow(2, 3, 1)).floor_divide(255).to(torch::kUInt8);
  }
  return channels_first(pixels);
}

inline torch::Tensor decode_png(const std::vector<uint8_t>& bytes,
                                const std::filesystem::path& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> owner(&image, png_image_free);
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    fail(path, image.message);
  }
  image.format = PNG_FORMAT_RGB;
  torch::Tensor pixels = torch::empty({image.height, image.width, 3}, torch::kUInt8);
  const png_color white{255, 255, 255};  // behind transparent pixels
  if (png_image_finish_read(&image, &white, pixels.data_ptr(), /*row_stride=*/0,
                            /*colormap=*/nullptr) == 0) {
    fail(path, image.message);
  }
  return channels_first(pixels);
}

}  // namespace image_file

// uint8 [3, height, width]. A file that is neither, or damaged, is an error that names it.
inline torch::Tensor read_image(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) image_file::fail(path, "it cannot be opened");
  const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)),
                                   std::istreambuf_iterator<char>());
  if (bytes.size() >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8) {
    return image_file::decode_jpeg(bytes, path);
  }
  if (bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0) {
    return image_file::decode_png(bytes, path);
  }
  image_file::fail(path, "it is neither a JPEG nor a PNG file");
}
