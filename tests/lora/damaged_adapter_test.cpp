// Broken and hostile adapter files: every one a one-line error that names file and tensor.
#include <gtest/gtest.h>
#include <limits>

#include "adapter_file.h"

namespace mere::test {
namespace {

const Matrix kA = Matrix::made(2, 4, 1);
const Matrix kB = Matrix::made(6, 2, 2);

// Reads `file`, expects an IoError that starts with its path and holds every one of `parts`.
void expect_damaged(const AdapterFile& file, const std::vector<std::string>& parts) {
  const fs::path path = file.write();
  const std::string message = message_of<IoError>([&] { read_adapter(path, toy_targets()); });
  EXPECT_EQ(message.rfind(path.string(), 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(DamagedAdapter, MissingPartnerIsNamed) {
  expect_damaged(AdapterFile().matrix("out.lora_A.weight", kA),
                 {"\"out.lora_A.weight\"", "no partner", "lora_B (up)", "\"out\""});
  expect_damaged(AdapterFile().matrix("out.lora_up.weight", kB),
                 {"\"out.lora_up.weight\"", "no partner", "lora_A (down)"});
  expect_damaged(AdapterFile().floats("out.alpha", {}, {1}), {"\"out.alpha\"", "no matrices"});
  // Also in a module that has no place.
  expect_damaged(AdapterFile().pair("out", kA, kB).matrix("elsewhere.lora_A.weight", kA),
                 {"\"elsewhere.lora_A.weight\"", "no partner"});
}

TEST(DamagedAdapter, ShapesMustFitTheModule) {
  expect_damaged(AdapterFile().pair("out", Matrix::made(2, 5, 1), kB),
                 {"\"out.lora_A.weight\"", "[2, 5]", "[rank, 4]", "another size"});
  expect_damaged(AdapterFile().pair("out", kA, Matrix::made(7, 2, 1)),
                 {"\"out.lora_B.weight\"", "[7, 2]", "[6, 2]", "another size"});
  expect_damaged(AdapterFile().pair("out", kA, Matrix::made(6, 3, 1)),
                 {"\"out.lora_B.weight\"", "[6, 3]", "[6, 2]"});
  expect_damaged(AdapterFile().pair("all", kA, kB), {"\"all.lora_B.weight\"", "[14, 2]"});
  expect_damaged(
      AdapterFile().floats("out.lora_A.weight", {8}, kA.values).matrix("out.lora_B.weight", kB),
      {"\"out.lora_A.weight\"", "[8]"});
  expect_damaged(AdapterFile()
                     .floats("out.lora_A.weight", {2, 2, 2}, kA.values)
                     .matrix("out.lora_B.weight", kB),
                 {"\"out.lora_A.weight\"", "[2, 2, 2]"});
}

TEST(DamagedAdapter, RankIsBounded) {
  expect_damaged(
      AdapterFile().floats("out.lora_A.weight", {0, 4}, {}).floats("out.lora_B.weight", {6, 0}, {}),
      {"\"out.lora_A.weight\"", "rank 0"});
  expect_damaged(AdapterFile().pair("out", Matrix::made(4097, 4, 1), Matrix::made(6, 4097, 1)),
                 {"\"out.lora_A.weight\"", "rank 4097"});
}

TEST(DamagedAdapter, ValuesMustBeFinite) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const float value : bad) {
    Matrix a = kA;
    a.values.back() = value;
    expect_damaged(AdapterFile().pair("out", a, kB), {"\"out.lora_A.weight\"", "not finite"});
    Matrix b = kB;
    b.values.back() = value;
    expect_damaged(AdapterFile().pair("out", kA, b), {"\"out.lora_B.weight\"", "not finite"});
    expect_damaged(AdapterFile().pair("out", kA, kB).floats("out.alpha", {}, {value}),
                   {"\"out.alpha\"", "not finite"});
    expect_damaged(AdapterFile().pair("out", kA, kB).pair("elsewhere", a, kB),
                   {"\"elsewhere.lora_A.weight\"", "not finite"});
  }
  for (const auto& [dtype, bits] : {std::pair{"F16", "\x00\x7E"}, std::pair{"BF16", "\x80\xFF"}}) {
    std::string bytes(16, '\0');
    bytes.replace(14, 2, bits, 2);
    expect_damaged(AdapterFile()
                       .raw("out.lora_A.weight", dtype, {2, 4}, bytes)
                       .matrix("out.lora_B.weight", kB),
                   {"\"out.lora_A.weight\"", "not finite"});
  }
}

TEST(DamagedAdapter, LargestFiniteValuesAreTaken) {
  Matrix a = kA;
  a.values.back() = std::numeric_limits<float>::max();
  EXPECT_EQ(read_adapter(AdapterFile().pair("out", a, kB).write(), toy_targets()).applied, 1);
}

TEST(DamagedAdapter, DtypesAreChecked) {
  expect_damaged(AdapterFile()
                     .raw("out.lora_A.weight", "I32", {2, 4}, std::string(32, '\0'))
                     .matrix("out.lora_B.weight", kB),
                 {"\"out.lora_A.weight\"", "I32"});
  expect_damaged(AdapterFile()
                     .raw("out.lora_A.weight", "F64", {2, 4}, std::string(64, '\0'))
                     .matrix("out.lora_B.weight", kB),
                 {"\"out.lora_A.weight\"", "F64"});
  expect_damaged(
      AdapterFile().pair("out", kA, kB).raw("out.alpha", "I64", {}, std::string(8, '\0')),
      {"\"out.alpha\"", "I64"});
}

TEST(DamagedAdapter, AlphaIsOneNumber) {
  expect_damaged(AdapterFile().pair("out", kA, kB).floats("out.alpha", {2}, {1, 1}),
                 {"\"out.alpha\"", "[2]"});
  expect_damaged(AdapterFile().pair("out", kA, kB).floats("out.alpha", {0}, {}),
                 {"\"out.alpha\"", "[0]"});
  const double huge = 1e300;
  expect_damaged(AdapterFile()
                     .pair("out", kA, kB)
                     .raw("out.alpha", "F64", {}, {reinterpret_cast<const char*>(&huge), 8}),
                 {"\"out.alpha\"", "too large"});
}

TEST(DamagedAdapter, OneModuleUnderTwoSpellings) {
  expect_damaged(AdapterFile().pair("transformer.out", kA, kB).pair("out", kA, kB),
                 {"\"out\"", "\"transformer.out\"", "two spellings"});
  expect_damaged(AdapterFile().pair("out", kA, kB).matrix("out.lora_down.weight", kA),
                 {"\"out.lora_down.weight\"", "second time", "\"out.lora_A.weight\""});
}

TEST(DamagedAdapter, BrokenMetadata) {
  for (const char* json : {"", "{", "[]", "7", R"({"lora_alpha": "x"})", R"({"lora_alpha": 1e300})",
                           R"({"lora_alpha": 1, "alpha_pattern": [1]})",
                           R"({"lora_alpha": 1, "alpha_pattern": {"a": "b"}})",
                           R"({"lora_alpha": 1, "use_rslora": 3})"}) {
    expect_damaged(AdapterFile().pair("out", kA, kB).metadata("lora_adapter_metadata", json),
                   {"lora_adapter_metadata"});
  }
}

TEST(DamagedAdapter, ControlCharactersDoNotReachTheTerminal) {
  expect_damaged(AdapterFile().pair("out", kA, kB).matrix("\x1b[2J\n.lora_A.weight", kA),
                 {"\"?[2J?.lora_A.weight\""});
}

TEST(DamagedAdapter, TruncatedAnywhere) {
  const std::string bytes = AdapterFile().pair("out", kA, kB).floats("out.alpha", {}, {1}).bytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const fs::path path = AdapterFile::write_bytes(bytes.substr(0, length));
    message_of<IoError>([&] { read_adapter(path, toy_targets()); });
  }
}

// Bytes changed at random: anything may come out but a crash or an error of another kind.
TEST(DamagedAdapter, ChangedBytes) {
  const std::string whole = AdapterFile()
                                .pair("transformer.out", kA, kB)
                                .floats("transformer.out.alpha", {}, {1})
                                .pair("transformer.blocks.0.attn.q", kA, Matrix::made(4, 2, 3))
                                .metadata("lora_adapter_metadata", R"({"lora_alpha": 2})")
                                .bytes();
  uint32_t seed = 1;
  const auto next = [&] { return (seed = seed * 1664525U + 1013904223U) >> 8; };
  int read = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole;
    for (uint32_t change = next() % 4 + 1; change > 0; --change) {
      bytes[next() % bytes.size()] = static_cast<char>(next() % 2 ? next() : '0' + next() % 10);
    }
    try {
      const Adapter adapter = read_adapter(AdapterFile::write_bytes(bytes), toy_targets());
      for (const auto& [module, deltas] : adapter.deltas) {
        for (const LoraDelta& delta : deltas) EXPECT_EQ(to_floats(delta.b).size() % 2, 0U);
      }
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 400);
}

}  // namespace
}  // namespace mere::test
