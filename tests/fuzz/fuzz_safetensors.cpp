// Any bytes as a safetensors file: either an Error, or tensors whose every byte can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "tensor/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes = std::as_bytes(std::span(data, size));
  try {
    const mere::SafetensorsHeader header = mere::parse_safetensors(bytes, "fuzz");
    for (const auto& [name, tensor] : header.tensors) {
      size_t expected = mere::stored_type_bytes(tensor.type);
      for (const int64_t dim : tensor.shape) expected *= static_cast<size_t>(dim);
      if (tensor.begin > tensor.end || tensor.end > size || tensor.end - tensor.begin != expected) {
        std::abort();
      }
      // Read through a volatile so that the sanitizer sees each access.
      volatile unsigned sum = 0;
      for (size_t i = tensor.begin; i < tensor.end; ++i) sum = sum + data[i];
    }
  } catch (const mere::Error&) {
  }
  return 0;
}
