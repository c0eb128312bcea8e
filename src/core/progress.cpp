#include "core/progress.h"

#include "core/error.h"

namespace mere {

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kWaiting:
      return "waiting";
    case Stage::kLoadingModel:
      return "loadingModel";
    case Stage::kLoadingEncoder:
      return "loadingEncoder";
    case Stage::kEncodingText:
      return "encodingText";
    case Stage::kEncodingReferenceImages:
      return "encodingReferenceImages";
    case Stage::kLoadingTransformer:
      return "loadingTransformer";
    case Stage::kLoadingLora:
      return "loadingLoRA";
    case Stage::kDenoising:
      return "denoising";
    case Stage::kLoadingVae:
      return "loadingVAE";
    case Stage::kDecoding:
      return "decoding";
    case Stage::kSaving:
      return "saving";
  }
  return "unknown";
}

void Progress::report(Stage stage, int64_t step, int64_t total) {
  check_cancelled();
  on_report(stage, step, total);
}

void Progress::report_waiting(const Waiting& waiting) {
  check_cancelled();
  on_waiting(waiting);
}

void Progress::check_cancelled() const {
  if (cancelled()) throw Cancelled();
}

}  // namespace mere
