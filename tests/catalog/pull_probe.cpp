// pull_probe ENDPOINT HUB MODELS TRIES: pulls the model of the fault runs in a process that can be
// killed. The token comes from HF_TOKEN. Prints what was said on stderr; exit status as the
// program's.
#include <cstdio>
#include <cstdlib>

#include "catalog/pull.h"
#include "core/error.h"

namespace {

class PrintingObserver : public mere::TransferObserver {
 public:
  void note(std::string_view text) override {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  }
  void warn(std::string_view text) override { note(text); }
  void on_transfer(const mere::TransferState&) override {}

 protected:
  void on_report(mere::Stage, int64_t, int64_t) override {}
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 64;
  ::setenv("HF_ENDPOINT", argv[1], 1);
  mere::CatalogModel model;
  model.id = "image-faults";
  model.category = "image";
  model.family = "klein";
  model.sources = {{"tests/faults", "main", {}, {}, "", "model"}};
  PrintingObserver observer;
  try {
    mere::PullRequest request;
    request.hub_dir = argv[2];
    request.models_dir = argv[3];
    request.access = mere::hub_access(observer);
    request.transfer.hub.timeouts.stall_seconds = 2;
    request.transfer.hub.retry.wait = [](double) {};
    request.transfer.hub.retry.tries = std::atoi(argv[4]);
    request.free_disk = [](const mere::fs::path&) { return int64_t{1} << 40; };
    mere::pull_model(model, request, observer);
    return 0;
  } catch (const mere::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return mere::exit_status(e.kind());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "unexpected: %s\n", e.what());
    return 2;
  }
}
