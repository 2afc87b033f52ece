#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>

#include "checkpoint/damage.h"
#include "checkpoint/test_checkpoint.h"

namespace epl {
namespace {

using testing::HasSubstr;
using Safetensors = CheckpointFolder;

std::string with_length(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return length + header + data;
}

SafetensorsHeader parse_bytes(const std::string& bytes) {
  const auto read = [&](int64_t offset, int64_t size, void* to) {
    ASSERT_LE(offset + size, static_cast<int64_t>(bytes.size()));
    std::copy_n(bytes.data() + offset, size, static_cast<char*>(to));
  };
  return parse_header(read, static_cast<int64_t>(bytes.size()), "some file");
}

std::string fault_of(const std::string& bytes) {
  try {
    parse_bytes(bytes);
    return "none";
  } catch (const DamagedCheckpoint& error) {
    return error.what();
  }
}

TEST_F(Safetensors, OfEveryTypeAreReadAsTheyWereWritten) {
  std::mt19937 random(5);
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> bytes;
  for (const char* name : {"BOOL", "U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64"}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3}, Shape{2, 0, 5}, Shape{3, 5, 7}}) {
      tensors.push_back({name + print_shape(shape), *stored_type(name), shape});
      bytes[tensors.back().name] = random_tensor(*stored_type(name), shape, random).bytes;
    }
  }
  const SafetensorsHeader header = lay_out(tensors, {{"format", "pt"}});
  const std::string path = folder + "/all.safetensors";
  const FileRecord record =
      write_safetensors(path, header, [&](const StoredTensor& tensor, CheckedFileWriter& file) {
        file.write(bytes.at(tensor.name).data(), bytes.at(tensor.name).size());
      });

  const std::string file = bytes_of_file(path);
  CheckedFileReader reader(path, record);
  const SafetensorsHeader read = read_header(reader);
  EXPECT_EQ(read.metadata.at("format"), "pt");
  EXPECT_EQ(read.data_begin % 4096, 0);
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const StoredTensor& tensor : read.tensors) {
    EXPECT_EQ(tensor.offset % bytes_of(tensor.type), 0) << tensor.name;
    EXPECT_EQ(name_of(tensor.type) + print_shape(tensor.shape), tensor.name);
    EXPECT_EQ(file.substr(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes)),
              bytes.at(tensor.name));
  }
}

TEST_F(Safetensors, RefuseTwoTensorsOfOneName) {
  EXPECT_THROW(lay_out({{"a", StoredType::kF32, {2}}, {"a", StoredType::kF32, {2}}}), Error);
  EXPECT_THROW(lay_out({{"__metadata__", StoredType::kF32, {2}}}), Error);
  EXPECT_THROW(lay_out({{"\xff", StoredType::kF32, {2}}}), Error);
}

TEST(SafetensorsHeader, OfAStrangerIsCheckedInAllItSays) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(fault_of(with_length(good, "12345678")), "none");
  const std::vector<std::pair<std::string, std::string>> faults = {
      {R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", "F8_E4M3"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "8 bytes, which are not F32"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "no list of counts"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "no list of counts"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "no memory holds"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551608]}})",
       "no list of counts"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "outside of the file"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "outside of the file"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "outside of the file"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "overlap or leave a gap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "overlap or leave a gap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "end at byte"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
           "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", "does not know"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "has no `data_offsets`"},
      {R"({"a":7})", "no object"},
      {R"([])", "no object"},
      {R"({"a")", "no JSON"},
      {"", "no JSON"},
      {std::string(100000, '['), "nested too deep"},
      {R"({"__metadata__":{"x":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "no text"},
  };
  for (const auto& [header, fault] : faults) {
    EXPECT_THAT(fault_of(with_length(header, "12345678")), HasSubstr(fault)) << header;
  }
  EXPECT_THAT(fault_of("1234567"), HasSubstr("too few"));
  EXPECT_THAT(fault_of(std::string(8, '\xff')), HasSubstr("would have"));
  EXPECT_THAT(fault_of(std::string("\x09\0\0\0\0\0\0\0", 8) + "{}"), HasSubstr("would have"));
}

// Whatever is changed in a header: an error, or tensors that lie in the file and do not overlap.
TEST(SafetensorsHeader, ThatIsChangedAtRandomNeverNamesBytesThatAreNotThere) {
  const SafetensorsHeader header = lay_out({{"fc.weight", StoredType::kF32, {4, 3}},
                                            {"fc.bias", StoredType::kBF16, {4}},
                                            {"empty", StoredType::kI8, {0, 7}}});
  std::string text = print_header(header);
  text.resize(text.find_last_not_of(' ') + 1);
  const std::string good = with_length(text.substr(8), std::string(56, 'd'));
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      const size_t place = random() % (bytes.size() - 56);
      if (random() % 2 == 0)
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << random() % 8));
      else if (random() % 2 == 0)
        bytes[place] = "0123456789[]{},:\"-"[random() % 18];
      else
        bytes.erase(place, random() % 4);
    }
    try {
      int64_t next = -1;
      for (const StoredTensor& tensor : parse_bytes(bytes).tensors) {
        if (next >= 0) {
          ASSERT_EQ(tensor.offset, next);
        }
        next = tensor.offset + tensor.bytes;
        ASSERT_LE(next, static_cast<int64_t>(bytes.size()));
        ASSERT_EQ(tensor.bytes, *element_count(tensor.shape) * bytes_of(tensor.type));
      }
    } catch (const DamagedCheckpoint&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace epl
