#include "cli/option_values.h"

#include <gtest/gtest.h>
#include <limits>

#include "program.h"

#include "core/error.h"

namespace mere::cli {
namespace {

TEST(OptionValues, WholeNumbers) {
  EXPECT_EQ(parse_int("-12", "--x"), -12);
  EXPECT_EQ(parse_int("010", "--x"), 10);
  for (const char* bad : {"", "1.5", "x", "1x", " 1", "99999999999999999999", "0x10", "+1"}) {
    EXPECT_THROW(parse_int(bad, "--x"), UsageError) << bad;
  }
}

TEST(OptionValues, Seeds) {
  EXPECT_EQ(parse_seed("0", "--seed"), 0U);
  EXPECT_EQ(parse_seed("18446744073709551615", "--seed"), std::numeric_limits<uint64_t>::max());
  for (const char* bad : {"-1", "18446744073709551616", "", "1e3"}) {
    EXPECT_THROW(parse_seed(bad, "--seed"), UsageError) << bad;
  }
}

TEST(OptionValues, Numbers) {
  EXPECT_EQ(parse_number("-0.5", "--x"), -0.5);
  EXPECT_EQ(parse_number("1e2", "--x"), 100);
  for (const char* bad : {"", "nan", "inf", "-inf", "1,5", "1e999"}) {
    EXPECT_THROW(parse_number(bad, "--x"), UsageError) << bad;
  }
  EXPECT_EQ(parse_numbers("1, 0.5 ,0", "--x"), (std::vector<double>{1, 0.5, 0}));
  for (const char* bad : {"", "1,,2", "1,", ",", "1;2"}) {
    EXPECT_THROW(parse_numbers(bad, "--x"), UsageError) << bad;
  }
}

TEST(OptionValues, Memory) {
  EXPECT_EQ(parse_memory("8GB", "--x"), 8'000'000'000);
  EXPECT_EQ(parse_memory("512mb", "--x"), 512'000'000);
  EXPECT_EQ(parse_memory("1.5 GiB", "--x"), 1'610'612'736);
  EXPECT_EQ(parse_memory("2g", "--x"), 2'000'000'000);
  EXPECT_EQ(parse_memory("1000", "--x"), 1000);
  for (const char* bad : {"", "GB", "-1GB", "8XB", "0", "1e3", "99999999999TB", "1.2.3GB"}) {
    EXPECT_THROW(parse_memory(bad, "--x"), UsageError) << bad;
  }
}

TEST(OptionValues, Adapters) {
  EXPECT_EQ(parse_lora("a.safetensors", "--lora").scale, 1.0F);
  EXPECT_EQ(parse_lora("a.safetensors=0.5", "--lora").scale, 0.5F);
  EXPECT_EQ(parse_lora("a.safetensors=-2", "--lora").path, "a.safetensors");
  EXPECT_EQ(parse_lora("a=b.safetensors=2", "--lora").path, "a=b.safetensors");
  for (const char* bad : {"", "=1", "a.safetensors=x", "a.safetensors=", "a=b.safetensors",
                          "a.safetensors=100.1", "a.safetensors=-1e300"}) {
    EXPECT_THROW(parse_lora(bad, "--lora"), UsageError) << bad;
  }
}

TEST(OptionValues, APathWithAnEqualsSignWorksWhenItExists) {
  const Program program;
  const std::string path = program.write("rank=0.5", "x").string();
  EXPECT_EQ(parse_lora(path, "--lora").path, path);
  EXPECT_EQ(parse_lora(path, "--lora").scale, 1.0F);
  EXPECT_EQ(parse_lora(path + "=0.25", "--lora").path, path);
}

}  // namespace
}  // namespace mere::cli
