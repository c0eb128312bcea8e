// Makes adapter files for tests and computes what an adapter adds to the weights.
#pragma once

#include <cstring>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/error.h"
#include "lora/adapter.h"

namespace mere::test {

// A row-major matrix with reproducible values of either sign.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  static Matrix made(int64_t rows, int64_t cols, uint32_t seed) {
    Matrix m{rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
    for (float& v : m.values) {
      seed = seed * 1664525U + 1013904223U;
      v = static_cast<float>(static_cast<int32_t>(seed >> 24) - 128) / 64.0F;
    }
    return m;
  }
  static Matrix stacked(const std::vector<Matrix>& parts) {
    Matrix m{0, parts.front().cols, {}};
    for (const Matrix& part : parts) {
      m.rows += part.rows;
      m.values.insert(m.values.end(), part.values.begin(), part.values.end());
    }
    return m;
  }
  Matrix slice(int64_t first, int64_t count) const {
    return {count, cols, {values.begin() + first * cols, values.begin() + (first + count) * cols}};
  }
};

class AdapterFile {
 public:
  AdapterFile& raw(const std::string& name, const std::string& dtype,
                   const std::vector<int64_t>& shape, const std::string& bytes) {
    header_[name] = {{"dtype", dtype},
                     {"shape", shape},
                     {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
    return *this;
  }
  AdapterFile& floats(const std::string& name, const std::vector<int64_t>& shape,
                      const std::vector<float>& values) {
    return raw(name, "F32", shape,
               {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  AdapterFile& matrix(const std::string& name, const Matrix& m) {
    return floats(name, {m.rows, m.cols}, m.values);
  }
  AdapterFile& pair(const std::string& module, const Matrix& a, const Matrix& b) {
    return matrix(module + ".lora_A.weight", a).matrix(module + ".lora_B.weight", b);
  }
  AdapterFile& metadata(const std::string& key, const std::string& value) {
    header_["__metadata__"][key] = value;
    return *this;
  }

  std::string bytes() const {
    const std::string json = header_.dump();
    std::string out(8, '\0');
    const uint64_t length = json.size();
    std::memcpy(out.data(), &length, sizeof(length));
    return out + json + data_;
  }
  fs::path write(const std::string& name = "adapter.safetensors") const {
    return write_bytes(bytes(), name);
  }
  static fs::path write_bytes(const std::string& bytes,
                              const std::string& name = "adapter.safetensors") {
    const fs::path path = folder() / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // A folder of this process, removed at its end.
  static fs::path folder() {
    struct Folder {
      fs::path path = fs::path(testing::TempDir()) / ("lora_test_" + std::to_string(::getpid()));
      Folder() { fs::create_directories(path); }
      ~Folder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
      }
    };
    static const Folder folder;
    return folder.path;
  }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

// What `adapter` adds to each module: sum of factor * B A, [rows of the module, in].
inline std::map<std::string, std::vector<double>> dense(
    const Adapter& adapter, const std::map<std::string, int64_t>& module_rows) {
  std::map<std::string, std::vector<double>> sums;
  for (const auto& [module, deltas] : adapter.deltas) {
    const auto in = static_cast<int64_t>(deltas.front().a.shape(1));
    std::vector<double>& sum = sums[module];
    sum.resize(static_cast<size_t>(module_rows.at(module) * in));
    for (const LoraDelta& delta : deltas) {
      const std::vector<float> a = to_floats(delta.a);
      const std::vector<float> b = to_floats(delta.b);
      const auto rank = static_cast<int64_t>(delta.a.shape(0));
      for (int64_t row = 0; row < delta.rows; ++row) {
        for (int64_t col = 0; col < in; ++col) {
          double value = 0;
          for (int64_t r = 0; r < rank; ++r) {
            value += static_cast<double>(b[row * rank + r]) * a[r * in + col];
          }
          sum[(delta.row_offset + row) * in + col] += delta.factor * value;
        }
      }
    }
  }
  return sums;
}

template <typename E>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing thrown";
  return "";
}

// A model of two modules, one of which also goes by the names of its halves.
inline LoraTargets toy_targets() {
  return {.family = "Toy",
          .names = {{.name = "blocks.0.attn.qk", .targets = {{"blocks.0.attn.qk", 0, 8, 4}}},
                    {.name = "blocks.0.attn.q", .targets = {{"blocks.0.attn.qk", 0, 4, 4}}},
                    {.name = "blocks.0.attn.k", .targets = {{"blocks.0.attn.qk", 4, 4, 4}}},
                    {.name = "out", .targets = {{"out", 0, 6, 4}}},
                    {.name = "old.out", .targets = {{"out", 0, 6, 4}}, .swap_halves = true},
                    {.name = "all", .targets = {{"blocks.0.attn.qk", 0, 8, 4}, {"out", 0, 6, 4}}}}};
}

}  // namespace mere::test
