#include "checkpoint/tensor_bytes.h"

#include <ATen/ATen.h>
#include <epl/error.h>

#include "checkpoint/test_checkpoint.h"

namespace epl {
namespace {

using TensorBytes = CheckpointFolder;

std::vector<at::Tensor> tensors_of_every_type() {
  std::vector<at::Tensor> tensors;
  for (const at::ScalarType type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt,
                                    at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0, 4}, {5, 3}}) {
      tensors.push_back(at::randint(0, 100, shape, at::kFloat).to(type));
    }
  }
  return tensors;
}

TEST_F(TensorBytes, OfEveryTypeComeBack) {
  const std::vector<at::Tensor> tensors = tensors_of_every_type();
  const std::string partial = begin_step(folder, 1);
  Manifest manifest;
  manifest.step = 1;
  std::vector<HeldPart> parts;
  std::vector<at::Tensor> read;
  std::vector<WantedPart> wanted_parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    parts.push_back(held("t" + std::to_string(i), tensors[i]));
    read.push_back(at::zeros_like(tensors[i]));
    wanted_parts.push_back(wanted("t" + std::to_string(i), read[i]));
  }
  write_shard(manifest, partial, "a", parts);
  commit_step(folder, manifest);
  CheckpointReader(saved_steps(folder).back().path).read(wanted_parts);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(read[i].equal(tensors[i])) << tensors[i].toString() << tensors[i].sizes();
  }
}

TEST(TensorBytesOf, RefuseWhatSafetensorsOrMemoryDoesNotHave) {
  EXPECT_THROW(held("c", at::zeros({2}, at::kComplexFloat)), Error);
  EXPECT_THROW(held("t", at::zeros({2, 3}).t()), Error);
  EXPECT_THROW(held("s", at::zeros({2, 3}).to_sparse()), Error);
}

}  // namespace
}  // namespace epl
