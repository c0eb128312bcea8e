#include "tensor/safetensors.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>

#include "core/error.h"

namespace mere {
namespace {

constexpr const char* kSource = "w.safetensors";

// The bytes of a file: header length, header, data.
std::string file_of(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

SafetensorsHeader parse(const std::string& bytes) {
  // A copy of exactly the size, so that the sanitizers see a read past the end.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  return parse_safetensors(std::as_bytes(std::span(exact)), kSource);
}

// Parses `bytes`, which must fail with one printable line that starts with the file's name, and
// returns that line.
std::string error_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const IoError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.rfind(kSource, 0), 0U) << message;
    for (const char c : message) {
      EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7F) << message;
    }
    EXPECT_LE(message.size(), 2100U);
    return message;
  }
  ADD_FAILURE() << "accepted";
  return "";
}

void expect_error(const std::string& bytes, const std::vector<std::string>& parts) {
  const std::string message = error_of(bytes);
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

// A file with one tensor "t" of 8 bytes of data, described by `description`.
void expect_tensor_error(const std::string& description, const std::string& part) {
  SCOPED_TRACE(description);
  expect_error(file_of("{\"t\":" + description + "}", "12345678"), {"tensor \"t\" ", part});
}

TEST(Safetensors, ReadsShapesOffsetsAndMetadata) {
  const std::string header = R"({"__metadata__":{"format":"pt","case":"{}"},)"
                             R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )";
  const SafetensorsHeader parsed = parse(file_of(header, "12345678"));
  ASSERT_EQ(parsed.tensors.size(), 2U);
  const StoredTensor& a = parsed.tensors.at("a");
  EXPECT_EQ(a.type, StoredType::kF32);
  EXPECT_TRUE(a.shape.empty());
  EXPECT_EQ(a.begin, 8 + header.size());
  EXPECT_EQ(a.end, 12 + header.size());
  const StoredTensor& b = parsed.tensors.at("b");
  EXPECT_EQ(b.type, StoredType::kBF16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(b.end - b.begin, 4U);
  EXPECT_EQ(parsed.metadata,
            (std::map<std::string, std::string>{{"format", "pt"}, {"case", "{}"}}));
}

TEST(Safetensors, KnowsEveryStorageType) {
  const std::pair<const char*, size_t> types[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
      {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, width] : types) {
    const std::string header = std::string(R"({"t":{"dtype":")") + name +
                               R"(","shape":[1],"data_offsets":[0,)" + std::to_string(width) +
                               "]}}";
    const StoredType type = parse(file_of(header, "12345678")).tensors.at("t").type;
    EXPECT_EQ(stored_type_name(type), name);
    EXPECT_EQ(stored_type_bytes(type), width);
  }
}

TEST(Safetensors, OpensFiles) {
  const fs::path path = fs::path(testing::TempDir()) / "safetensors_test_opens.safetensors";
  std::ofstream(path, std::ios::binary)
      << file_of(R"({"t":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", "0abc9");
  const SafetensorsFile file(path);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.find("u"), nullptr);
  ASSERT_NE(file.find("t"), nullptr);
  const auto bytes = file.data(*file.find("t"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "abc");
  fs::remove(path);
  EXPECT_THROW(SafetensorsFile{path}, IoError);
}

TEST(Safetensors, TensorsOfNoSizeAreFine) {
  const SafetensorsHeader parsed =
      parse(file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                    R"("b":{"dtype":"F32","shape":[2147483647,0,2147483647],"data_offsets":[2,2]},)"
                    R"("c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                    "1234"));
  EXPECT_EQ(parsed.tensors.size(), 3U);
  EXPECT_EQ(parsed.tensors.at("b").begin, parsed.tensors.at("b").end);
  EXPECT_TRUE(parse(file_of("{}")).tensors.empty());
}

TEST(Safetensors, FilesTooShortForALength) {
  expect_error("", {"too short"});
  expect_error("x", {"too short"});
  expect_error("1234567", {"too short"});
}

TEST(Safetensors, HeaderLengthsThatDoNotFit) {
  for (const uint64_t length :
       {uint64_t{1} << 60, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7, uint64_t{3}}) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    expect_error(bytes + "{}", {"header length " + std::to_string(length), "10 bytes"});
  }
}

TEST(Safetensors, HeadersAreBounded) {
  expect_error(file_of("{}" + std::string(size_t{33} << 20, ' ')), {"header length"});
}

TEST(Safetensors, HeadersThatAreNoJsonObject) {
  for (const char* header :
       {"", "x", "{", "[]", "1", "null", "\"t\"", "{}{}", "{\"t\":}", "{\"\xff\":1}", "{'t':1}"}) {
    SCOPED_TRACE(header);
    error_of(file_of(header));
  }
}

// The JSON reader stops at a NUL: everything behind it would be ignored.
TEST(Safetensors, NulInTheHeaderIsRefused) {
  expect_error(file_of(std::string("{}\0{\"t\":1}", 10)), {"NUL"});
  expect_error(file_of(std::string("{}\0\0\0\0", 6)), {"NUL"});
}

TEST(Safetensors, GitLfsPointerIsNamed) {
  expect_error("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n",
               {"Git LFS pointer", "git lfs pull"});
}

TEST(Safetensors, DeepNesting) {
  expect_error(file_of("{\"t\":" + std::string(1 << 20, '[')), {"nested"});
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  expect_error(file_of(objects), {"nested"});
}

TEST(Safetensors, DuplicateNames) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_error(file_of("{\"t\":" + tensor + ",\"t\":" + tensor + "}", "1"), {"\"t\"", "twice"});
  expect_error(file_of("{\"t\":" + tensor + ",\"\\u0074\":" + tensor + "}", "1"), {"twice"});
  expect_error(
      file_of(R"({"t":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}})", "1"),
      {"\"dtype\"", "twice"});
  expect_error(file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), {"\"a\"", "twice"});
}

TEST(Safetensors, Metadata) {
  expect_error(file_of(R"({"__metadata__":[]})"), {"__metadata__"});
  expect_error(file_of(R"({"__metadata__":{"a":1}})"), {"__metadata__"});
}

TEST(Safetensors, Dtypes) {
  expect_tensor_error(R"({"shape":[1],"data_offsets":[0,4]})", "has no dtype");
  expect_tensor_error(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})", "has no dtype");
  expect_tensor_error(R"({"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]})", "F8_E4M3");
  expect_tensor_error(R"({"dtype":"f32","shape":[1],"data_offsets":[0,4]})", "f32");
  expect_tensor_error(R"({"dtype":"","shape":[1],"data_offsets":[0,4]})", "not supported");
}

TEST(Safetensors, Shapes) {
  const auto with = [](const std::string& shape) {
    return R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,8]})";
  };
  expect_tensor_error("[]", "not described by an object");
  expect_tensor_error(R"({"dtype":"U8","data_offsets":[0,8]})", "no shape");
  expect_tensor_error(with("8"), "no shape");
  expect_tensor_error(with("[-8]"), "negative");
  expect_tensor_error(with("[-1,-8]"), "negative");
  expect_tensor_error(with("[-0]"), "negative");
  expect_tensor_error(with("[8.0]"), "not an integer");
  expect_tensor_error(with("[8e0]"), "not an integer");
  expect_tensor_error(with("[\"8\"]"), "not an integer");
  expect_tensor_error(with("[true]"), "not an integer");
  expect_tensor_error(with("[2147483648]"), "too large");
  expect_tensor_error(with("[18446744073709551615]"), "too large");
  expect_tensor_error(with("[99999999999999999999]"), "too large");
  expect_tensor_error(with("[1,1,1,1,1,1,1,1,8]"), "more than 8 dimensions");
  expect_tensor_error(with("[9]"), "does not match its shape");
  expect_tensor_error(with("[]"), "does not match its shape");
}

TEST(Safetensors, ShapesWhoseSizeOverflows) {
  const auto with = [](const std::string& dtype, const std::string& shape) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,8]})";
  };
  expect_tensor_error(with("U8", "[2147483647,2147483647,2147483647]"), "overflows");
  // 2^64 elements and 2^64 bytes: both would come out as 0 or 8 if they wrapped.
  expect_tensor_error(with("U8", "[1073741824,1073741824,16]"), "overflows");
  expect_tensor_error(with("F64", "[1073741824,1073741824,2]"), "does not match its shape");
  expect_tensor_error(R"({"dtype":"F64","shape":[1073741824,1073741824,2],"data_offsets":[0,0]})",
                      "does not match its shape");
}

TEST(Safetensors, Offsets) {
  const auto with = [](const std::string& offsets) {
    return R"({"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}";
  };
  expect_tensor_error(R"({"dtype":"U8","shape":[4]})", "no valid data_offsets");
  for (const char* offsets : {"[]", "[0]", "[0,4,8]", "4", "{}", "[-4,0]", "[0,-4]", "[0.0,4.0]",
                              "[\"0\",\"4\"]", "[0,99999999999999999999]", "[null,4]"}) {
    expect_tensor_error(with(offsets), "no valid data_offsets");
  }
  expect_tensor_error(with("[4,0]"), "ends before it begins");
  expect_tensor_error(with("[5,9]"), "ends at byte 9 of data, but the file holds 8");
  expect_tensor_error(with("[18446744073709551612,0]"), "ends before it begins");
  expect_tensor_error(with("[18446744073709551608,18446744073709551612]"), "truncated");
  expect_tensor_error(with("[0,18446744073709551615]"), "truncated");
  expect_tensor_error(with("[0,3]"), "has 3 bytes");
  expect_tensor_error(with("[0,5]"), "has 5 bytes");
}

TEST(Safetensors, OverlappingTensors) {
  const auto tensor = [](int begin, int end) {
    return R"({"dtype":"U8","shape":[)" + std::to_string(end - begin) + R"(],"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const auto two = [&](const std::string& a, const std::string& b) {
    return file_of("{\"a\":" + a + ",\"b\":" + b + "}", "12345678");
  };
  expect_error(two(tensor(0, 4), tensor(0, 4)), {"overlaps"});
  expect_error(two(tensor(0, 5), tensor(4, 8)), {"\"b\" overlaps tensor \"a\""});
  expect_error(two(tensor(2, 3), tensor(0, 8)), {"\"a\" overlaps tensor \"b\""});
  EXPECT_EQ(parse(two(tensor(4, 8), tensor(0, 4))).tensors.size(), 2U);
  EXPECT_EQ(parse(two(tensor(0, 8), tensor(4, 4))).tensors.size(), 2U);
}

TEST(Safetensors, TruncatedAnywhere) {
  const std::string whole =
      file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678");
  EXPECT_EQ(parse(whole).tensors.size(), 1U);
  for (size_t length = 0; length < whole.size(); ++length) error_of(whole.substr(0, length));
}

TEST(Safetensors, HostileNamesDoNotReachTheTerminal) {
  expect_error(file_of(R"({"\u0000\u001b[2J\n\r\u007f":{}})"), {"\"??[2J???\""});
  expect_error(file_of("{\"" + std::string(100000, 'n') + "\":{}}"), {"nnn..."});
  expect_error(
      file_of(R"({"a\u0000b":{"dtype":"\n\u0007","shape":[1],"data_offsets":[0,1]}})", "1"),
      {"\"a?b\"", "dtype ??"});
  error_of(file_of("{\"t\": \x1b[31m}"));
}

// A NUL in a name is a name like any other to the map that is handed out.
TEST(Safetensors, NulInANameIsKept) {
  const auto parsed =
      parse(file_of(R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"));
  EXPECT_TRUE(parsed.tensors.contains(std::string("a\0b", 3)));
}

}  // namespace
}  // namespace mere
