// examples/bert: files of published weights, and their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/bert/weights.h"
#include "examples/common/files.h"
#include "tests/examples/example_files.h"

namespace {

using BertFiles = ExampleFiles;

using testing::ElementsAre;
using testing::HasSubstr;

// What Python's torch.save(state_dict, ..., _use_new_zipfile_serialization=False) wrote, the form
// of all files before PyTorch 1.6: module.embeddings.LayerNorm.gamma, a transposed float [3, 2] of
// 1 to 6, and .beta, a half [2] of 0.5 and -0.5; with the _metadata of a state_dict.
const char* const kLegacyFile =
    "80028a0a6cfc9c46f9206aa850192e80024de9032e80027d710028581000000070726f746f636f6c5f7665727369"
    "6f6e71014de903580d0000006c6974746c655f656e6469616e710288580a000000747970655f73697a657371037d"
    "710428580500000073686f727471054b025803000000696e7471064b0458040000006c6f6e6771074b0475752e80"
    "0263636f6c6c656374696f6e730a4f726465726564446963740a7100295271012858210000006d6f64756c652e65"
    "6d62656464696e67732e4c617965724e6f726d2e67616d6d61710263746f7263682e5f7574696c730a5f72656275"
    "696c645f74656e736f725f76320a71032828580700000073746f72616765710463746f7263680a466c6f61745374"
    "6f726167650a710558090000003831393734383030307106580300000063707571074b064e747108514b004b034b"
    "028671094b014b0386710a8968002952710b74710c52710d58200000006d6f64756c652e656d62656464696e6773"
    "2e4c617965724e6f726d2e62657461710e68032828680463746f7263680a48616c6653746f726167650a710f5809"
    "000000383139383232363838711068074b024e747111514b004b028571124b018571138968002952711474711552"
    "7116757d711758090000005f6d6574616461746171186800295271195800000000711a7d711b5807000000766572"
    "73696f6e711c4b01737373622e80025d710028580900000038313937343830303071015809000000383139383232"
    "3638387102652e06000000000000000000803f0000004000004040000080400000a0400000c04002000000000000"
    "00003800b8";

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

bert::NetworkOptions small_sizes() {
  bert::NetworkOptions sizes;
  sizes.layers = 2;
  sizes.hidden = 64;
  sizes.heads = 1;
  sizes.intermediate = 24;
  sizes.vocabulary = 30;
  sizes.positions = 10;
  return sizes;
}

std::vector<std::string> names_of(const bert::Weights& weights) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights) names.push_back(name);
  return names;
}

TEST_F(BertFiles, OldTorchSaveIsReadWithItsOldNames) {
  write("old.bin", bytes_of(kLegacyFile));
  const bert::Weights weights = bert::read_weights(path("old.bin"));
  EXPECT_THAT(names_of(weights),
              ElementsAre("bert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.weight"));
  EXPECT_TRUE(torch::equal(weights.at("bert.embeddings.LayerNorm.weight"),
                           torch::arange(1, 7, torch::kFloat32).view({2, 3}).t()));
  EXPECT_TRUE(torch::equal(weights.at("bert.embeddings.LayerNorm.bias"),
                           torch::tensor({0.5, -0.5}, torch::kHalf)));
}

TEST_F(BertFiles, OldTorchSaveThatIsCutOffAnywhereIsAnError) {
  const std::string whole = bytes_of(kLegacyFile);
  for (size_t size = 0; size < whole.size(); size += 7) {
    write("cut.bin", whole.substr(0, size));
    EXPECT_THAT(error_of([&] { bert::read_weights(path("cut.bin")); }),
                HasSubstr("cannot read the weights " + path("cut.bin").string()))
        << size;
  }
}

TEST_F(BertFiles, OldTorchSaveThatIsDamagedNeverCrashes) {
  const std::string whole = bytes_of(kLegacyFile);
  for (size_t place = 0; place < whole.size(); ++place) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x55);
    write("damaged.bin", damaged);
    error_of([&] { bert::read_weights(path("damaged.bin")); });
  }
}

TEST_F(BertFiles, WeightsComeBackAsTheyWereWritten) {
  bert::QuestionAnswering net(small_sizes());
  bert::write_weights(path("weights.bin"), *net);
  const bert::Weights weights = bert::read_weights(path("weights.bin"));
  const bert::NetworkOptions sizes = bert::sizes_of(weights);
  EXPECT_EQ(sizes.layers, 2);
  EXPECT_EQ(sizes.hidden, 64);
  EXPECT_EQ(sizes.heads, 1);
  EXPECT_EQ(sizes.intermediate, 24);
  EXPECT_EQ(sizes.vocabulary, 30);
  EXPECT_EQ(sizes.positions, 10);
  bert::QuestionAnswering other(sizes);
  EXPECT_EQ(bert::load_weights(weights, other).str(), "39 weights loaded");
  for (const auto& parameter : net->named_parameters()) {
    EXPECT_TRUE(torch::equal(parameter.value(), other->named_parameters()[parameter.key()]));
  }
}

std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + data;
}

TEST_F(BertFiles, SafetensorsAreRead) {
  const float numbers[] = {1, 2, 3};
  const std::string data(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  write("good.safetensors", safetensors(R"({"__metadata__": {"format": "pt"},
          "bert.a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [4, 12]},
          "bert.b": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})",
                                        data));
  const bert::Weights weights = bert::read_weights(path("good.safetensors"));
  EXPECT_TRUE(torch::equal(weights.at("bert.a"), torch::tensor({{2.F, 3.F}})));
  EXPECT_EQ(weights.at("bert.b").item<float>(), 1);

  const auto error_of_entry = [&](const std::string& entry) {
    write("bad.safetensors", safetensors(R"({"a": )" + entry + "}", data));
    return error_of([&] { bert::read_weights(path("bad.safetensors")); });
  };
  EXPECT_THAT(error_of_entry(R"({"dtype": "F32", "shape": [2], "data_offsets": [8, 16]})"),
              HasSubstr("a is not where its header says"));
  EXPECT_THAT(error_of_entry(R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]})"),
              HasSubstr("a is not where its header says"));
  EXPECT_THAT(error_of_entry(R"({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]})"),
              HasSubstr("a has impossible sizes"));
  EXPECT_THAT(error_of_entry(R"({"dtype": "F8", "shape": [2], "data_offsets": [0, 2]})"),
              HasSubstr("it has numbers of the unknown type F8"));
}

TEST_F(BertFiles, WeightsThatAreNoneAreNamed) {
  write("text.bin", "no weights at all");
  EXPECT_EQ(error_of([&] { bert::read_weights(path("text.bin")); }),
            "cannot read the weights " + path("text.bin").string() +
                ": it is neither a file of torch.save() nor safetensors\n"
                "  try:      a file that Python wrote by\n"
                "              import torch\n"
                "              torch.save(dict(model.state_dict()), \"weights.bin\")");
  EXPECT_THAT(error_of([&] { bert::read_weights(path("absent")); }),
              HasSubstr("absent: it cannot be opened"));
  torch::save(torch::ones({2}), path("libtorch.pt").string());
  EXPECT_THAT(error_of([&] { bert::read_weights(path("libtorch.pt")); }),
              HasSubstr("it is no state_dict"));
}

bert::Weights small_weights() {
  bert::QuestionAnswering net(small_sizes());
  bert::Weights weights;
  for (const auto& parameter : net->named_parameters()) {
    weights.emplace(parameter.key(), parameter.value().detach());
  }
  return weights;
}

TEST(BertWeights, HaveThePublishedNames) {
  const std::vector<std::string> names = names_of(small_weights());
  EXPECT_EQ(names.size(), 39U);
  for (const char* name :
       {"bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight", "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.1.attention.self.query.weight",
        "bert.encoder.layer.1.attention.self.key.bias",
        "bert.encoder.layer.1.attention.self.value.weight",
        "bert.encoder.layer.1.attention.output.dense.weight",
        "bert.encoder.layer.1.attention.output.LayerNorm.weight",
        "bert.encoder.layer.0.intermediate.dense.weight", "bert.encoder.layer.0.output.dense.bias",
        "bert.encoder.layer.0.output.LayerNorm.weight", "qa_outputs.weight", "qa_outputs.bias"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
}

TEST(BertWeights, OfPretrainingLeaveTheHeadToTraining) {
  bert::Weights weights = small_weights();
  weights.erase("qa_outputs.weight");
  weights.erase("qa_outputs.bias");
  weights["bert.pooler.dense.bias"] = torch::zeros({64});
  bert::QuestionAnswering net(small_sizes());
  EXPECT_EQ(bert::load_weights(weights, net).str(),
            "37 weights loaded; not in the file, trained anew: qa_outputs.weight, qa_outputs.bias; "
            "in the file, not used: bert.pooler.dense.bias");
}

TEST(BertWeights, ThatDoNotFitAreNamed) {
  bert::QuestionAnswering net(small_sizes());
  bert::Weights weights = small_weights();
  weights.erase("bert.encoder.layer.1.output.dense.bias");
  EXPECT_EQ(error_of([&] { bert::load_weights(weights, net); }),
            "the weights lack bert.encoder.layer.1.output.dense.bias");
  weights = small_weights();
  weights["bert.embeddings.word_embeddings.weight"] = torch::zeros({31, 64});
  EXPECT_EQ(error_of([&] { bert::load_weights(weights, net); }),
            "the weights are of another network: bert.embeddings.word_embeddings.weight is "
            "[31, 64] and should be [30, 64]");
  EXPECT_THAT(error_of([&] {
                bert::sizes_of({{"fc.weight", torch::zeros({2, 2})}});
              }),
              HasSubstr("these are no weights of BERT"));
}

}  // namespace
