#include "engine/workload.h"

#include <gtest/gtest.h>

#include "fake_family.h"

namespace mere {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> out;
  for (size_t start = 0; start < line.size();) {
    const size_t end = std::min(line.find(' ', start), line.size());
    out.push_back(line.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

std::string class_of(const std::string& line) {
  Workload workload = workload_of(words(line));
  workload.model_bytes = kGib;
  const auto found = resource_class(workload);
  return found ? std::string(resource_class_name(*found)) : "none";
}

TEST(Workload, ClassesOfCommands) {
  const std::pair<const char*, const char*> rows[] = {
      {"speech synthesize hello", "small"},
      {"audio generate", "small"},
      {"image generate --prompt x", "standard"},
      {"image validate", "standard"},
      {"image run-plan plan.json", "standard"},
      {"image reconstruct-3d a.png", "large"},
      {"image reconstruct-3d-multiview", "large"},
      {"image reconstruct-3d-trellis2", "large"},
      {"image train-lora", "large"},
      {"text chat", "standard"},
      {"text train-lora", "large"},
      {"vision caption", "standard"},
      {"vision geometry", "large"},
      {"vision geometry-multiview", "large"},
      {"vision image-to-3d", "large"},
      {"vision image-to-3d-trellis2", "large"},
      {"vision image-to-3d-multiview", "large"},
      {"vision depth-video", "large"},
      {"music generate", "small"},
      {"music train-adapter", "large"},
      {"sfx generate", "standard"},
      {"video generate", "large"},
      {"world serve", "large"},
      {"geo flood", "large"},
      {"model benchmark chat", "large"},
      {"adapter train", "standard"},
      // Nothing is computed, or the command takes a ticket of its own.
      {"adapter list", "none"},
      {"adapter pull x", "none"},
      {"image dataset discover", "none"},
      {"image visualize-run dir", "none"},
      {"image info a.png", "none"},
      {"image list", "none"},
      {"video list", "none"},
      {"model list", "none"},
      {"model pull x", "none"},
      {"status", "none"},
      {"config get hf-token", "none"},
      {"guide", "none"},
      {"catalog", "none"},
      {"api serve", "none"},
      {"open-webui quickstart", "none"},
      {"run list", "none"},
      {"graph run", "none"},
      {"executor probe", "none"},
      {"gate", "none"},
      {"setup", "none"},
      {"agent start", "none"},
      {"plugin run", "none"},
      {"", "none"},
      {"image", "standard"},
  };
  for (const auto& [line, expected] : rows) EXPECT_EQ(class_of(line), expected) << line;
}

TEST(Workload, InspectionTakesNoTicket) {
  for (const char* option : {"--help", "-h", "--version", "--dry-run", "--preflight",
                             "--materialize dir", "--materialize=dir", "--preflight --json"}) {
    EXPECT_EQ(class_of(std::string("image generate ") + option), "none") << option;
    EXPECT_EQ(class_of(std::string("video generate ") + option), "none") << option;
  }
  EXPECT_EQ(class_of("image generate --dry-running"), "standard");
}

TEST(Workload, LabelsAreTheFirstTwoWords) {
  EXPECT_EQ(workload_of(words("--models-root /m image generate")).label, "image generate");
  EXPECT_EQ(workload_of(words("image --models-root /m generate x y")).label, "image generate");
  EXPECT_EQ(workload_of(words("--models-root=/m image -q generate")).label, "image generate");
  EXPECT_EQ(workload_of(words("status")).label, "status");
  EXPECT_EQ(workload_of({"--models-root"}).label, "");
}

TEST(Workload, FindsTheModel) {
  for (const char* line :
       {"image generate --model m", "image generate --model=m", "-m m image generate"}) {
    EXPECT_EQ(workload_of(words(line)).model, "m") << line;
  }
  EXPECT_EQ(workload_of(words("image generate --model")).model, "");
}

TEST(Workload, LargeModelsMakeLargeJobs) {
  Workload workload = workload_of({"image", "generate"});
  const auto is = [&](const char* name) {
    return resource_class_name(*resource_class(workload)) == name;
  };
  workload.model_bytes = 48 * kGib - 1;
  EXPECT_TRUE(is("standard"));
  workload.model_bytes = 48 * kGib;
  EXPECT_TRUE(is("large"));
  workload.model_bytes.reset();
  workload.local_file_bytes = 48 * kGib - 1;
  EXPECT_TRUE(is("standard"));
  workload.local_file_bytes = 48 * kGib;
  EXPECT_TRUE(is("large"));
  workload.local_file_bytes.reset();
  workload.min_memory_gb = 63;
  EXPECT_TRUE(is("standard"));
  workload.min_memory_gb = 64;
  EXPECT_TRUE(is("large"));
}

TEST(Workload, NamesOfLargeModels) {
  for (const char* line :
       {"text chat --model text-agent-DeepSeek-V4-flash", "text chat -m DS4",
        "text chat --model=ds4", "text chat --engine text-chat-deepseek-v4-flash",
        "text chat --model-root /m/ds4-q2"}) {
    EXPECT_EQ(class_of(line), "large") << line;
  }
  EXPECT_EQ(class_of("text chat --model other"), "standard");
}

// A prompt is no model: "words4" holds "ds4".
TEST(Workload, PromptsDoNotMakeAJobLarge) {
  EXPECT_EQ(class_of("image generate --prompt words4 --output deepseek-v4.png"), "standard");
}

TEST(Workload, SmallCommandsNeedModelsThatAreKnownToBeSmall) {
  Workload workload = workload_of({"speech", "synthesize"});
  EXPECT_EQ(resource_class(workload), ResourceClass::kStandard);
  workload.model_bytes = 16 * kGib;
  EXPECT_EQ(resource_class(workload), ResourceClass::kSmall);
  workload.model_bytes = 16 * kGib + 1;
  EXPECT_EQ(resource_class(workload), ResourceClass::kStandard);
  workload.model_bytes = 48 * kGib;
  EXPECT_EQ(resource_class(workload), ResourceClass::kLarge);
  workload.model_bytes.reset();
  workload.estimate_bytes = 3 * kGib;
  EXPECT_EQ(resource_class(workload), ResourceClass::kSmall);
}

TEST(Workload, TheCatalogKnowsModels) {
  CatalogModel model;
  model.id = "image-krea2-raw";
  model.download_bytes = 36 * kGib;
  model.min_memory_gb = 96;
  Workload workload = workload_of({"image", "generate"});
  add_catalog_facts(workload, model);
  EXPECT_EQ(workload.model_bytes, 36 * kGib);
  EXPECT_EQ(resource_class(workload), ResourceClass::kLarge);
  workload = workload_of({"text", "chat"});
  model.id = "text-agent-deepseek-v4-flash";
  model.min_memory_gb = 0;
  add_catalog_facts(workload, model);
  EXPECT_EQ(resource_class(workload), ResourceClass::kLarge);
}

TEST(Workload, MeasuresAModelThatIsAFile) {
  const TemporaryFolder folder;
  Workload workload;
  workload.model = folder.write("model.gguf", "12345").string();
  add_local_file(workload);
  EXPECT_EQ(workload.local_file_bytes, 5);
  for (const std::string& model : {folder.path().string(), std::string("absent"), std::string()}) {
    workload = {};
    workload.model = model;
    add_local_file(workload);
    EXPECT_FALSE(workload.local_file_bytes) << model;
  }
}

TEST(Workload, JobsKnownToBeTinyTakeNoTicket) {
  Workload workload = workload_of({"image", "generate"});
  workload.estimate_bytes = kGib - 1;
  EXPECT_FALSE(resource_class(workload));
  workload.estimate_bytes = kGib;
  EXPECT_EQ(resource_class(workload), ResourceClass::kStandard);
}

TEST(Workload, PermitsByMemory) {
  const std::pair<int64_t, int> rows[] = {
      {0, 1},         {16 * kGib, 1},      {48 * kGib - 1, 1}, {48 * kGib, 2},  {96 * kGib - 1, 2},
      {96 * kGib, 4}, {192 * kGib - 1, 4}, {192 * kGib, 6},    {1024 * kGib, 6}};
  for (const auto& [bytes, permits] : rows) EXPECT_EQ(capacity_permits(bytes), permits) << bytes;
  for (const int capacity : {1, 2, 4, 6}) {
    EXPECT_EQ(permits_of(ResourceClass::kSmall, capacity), 1);
    EXPECT_EQ(permits_of(ResourceClass::kStandard, capacity), std::min(2, capacity));
    EXPECT_EQ(permits_of(ResourceClass::kLarge, capacity), capacity);
  }
}

TEST(Workload, MemoryIsTheMinimumOfTheClassOrWhatTheJobNeeds) {
  Workload workload;
  EXPECT_EQ(memory_needed(ResourceClass::kSmall, workload), 6 * kGib);
  EXPECT_EQ(memory_needed(ResourceClass::kStandard, workload), 16 * kGib);
  EXPECT_EQ(memory_needed(ResourceClass::kLarge, workload), 32 * kGib);
  workload.estimate_bytes = 3 * kGib;
  EXPECT_EQ(memory_needed(ResourceClass::kStandard, workload), 3 * kGib);
  workload.estimate_bytes = 90 * kGib;
  EXPECT_EQ(memory_needed(ResourceClass::kStandard, workload), 16 * kGib);
}

TEST(Workload, NamesOfClasses) {
  for (const char* name : {"small", "standard", "large"}) {
    EXPECT_EQ(resource_class_name(*find_resource_class(name)), name);
  }
  EXPECT_FALSE(find_resource_class("Large"));
}

}  // namespace
}  // namespace mere
