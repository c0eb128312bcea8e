#include "catalog/catalog.h"

#include <gtest/gtest.h>
#include <set>

#include "json_schema.h"
#include "temporary_folder.h"

#include "catalog/catalog_file.h"
#include "catalog/names.h"
#include "core/error.h"

namespace mere {
namespace {

constexpr size_t kMost = size_t{8} << 20;

Json catalog_json() { return parse_json_file(fs::path(MERE_CATALOG) / "catalog.json"); }
Json schema_json() { return parse_json_file(fs::path(MERE_CATALOG) / "catalog.schema.json"); }

TEST(Catalog, IsCompiledInAsItStandsInTheSourceTree) {
  const Catalog file =
      parse_catalog(read_file(fs::path(MERE_CATALOG) / "catalog.json", kMost), "catalog.json");
  ASSERT_EQ(catalog_models().size(), file.models.size());
  for (size_t i = 0; i < file.models.size(); ++i) {
    EXPECT_EQ(catalog_models()[i].id, file.models[i].id);
  }
  EXPECT_EQ(catalog().adapters.size(), file.adapters.size());
}

TEST(Catalog, MatchesItsSchema) {
  const Json schema = schema_json();
  EXPECT_EQ(schema_problem(catalog_json(), schema, schema), "");
}

// The schema and the reader must not drift apart: what one refuses the other does too.
TEST(Catalog, ReaderAndSchemaRefuseTheSame) {
  const auto damaged = [](const std::string& pointer, const Json& value) {
    Json json = catalog_json();
    json[Json::json_pointer(pointer)] = value;
    return json;
  };
  const std::string model = "/models/0";
  const std::string terms = "/models/3/terms/0";
  ASSERT_FALSE(catalog_json()[Json::json_pointer("/models/3/terms")].empty());
  const std::vector<Json> all = {
      damaged(model + "/id", "Image-Klein-Nano"),
      damaged(model + "/id", ""),
      damaged(model + "/id", 3),
      damaged(model + "/id", "../x"),
      damaged(model + "/id", std::string(300, 'a')),
      damaged(model + "/colour", "red"),
      damaged(model + "/summary", ""),
      damaged(model + "/sources", "x"),
      damaged(model + "/sources/0/repository", "no-slash"),
      damaged(model + "/sources/0/repository", "a/b/c"),
      damaged(model + "/sources/0/repository", "a/../b"),
      damaged(model + "/sources/0/revision", "refs/heads/main"),
      damaged(model + "/sources/0/revision", "-main"),
      damaged(model + "/sources/0/include/0", "/etc/passwd"),
      damaged(model + "/sources/0/include/0", ""),
      damaged(model + "/sources/0/mount", "/tmp"),
      damaged(model + "/download_bytes", 0),
      damaged(model + "/download_bytes", -5),
      damaged(model + "/download_bytes", 1.5),
      damaged(model + "/min_memory_gb", 0),
      damaged(model + "/setup", "yes"),
      damaged(model + "/quantization/bits", 9),
      damaged(model + "/defaults/steps", 0),
      damaged(model + "/defaults/sigma_shift", 0),
      damaged(model + "/defaults/seed", 1),
      damaged(terms + "/license_url", "http://example.org/"),
      damaged(terms + "/summary", ""),
      damaged("/adapters/0/sha256", "zz"),
      damaged("/adapters/0/url", "ftp://x"),
      damaged("/other", 1),
  };
  const Json schema = schema_json();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_NE(schema_problem(all[i], schema, schema), "") << i;
    EXPECT_THROW(parse_catalog(all[i].dump(), "x"), Error) << i;
  }
}

// What a schema cannot say.
TEST(Catalog, RefusesWhatDoesNotFitTogether) {
  const auto refused = [](const Json& json) {
    EXPECT_THROW(parse_catalog(json.dump(), "x"), IoError);
  };
  Json twice = catalog_json();
  twice["models"].push_back(twice["models"][0]);
  refused(twice);
  Json alone = catalog_json();
  alone["models"][0]["companions"] = {"no-such-model"};
  refused(alone);
  Json itself = catalog_json();
  itself["models"][0]["companions"] = {itself["models"][0]["id"]};
  refused(itself);
  Json memory = catalog_json();
  memory["models"][0]["recommended_memory_gb"] = 1;
  refused(memory);
  for (const char* path : {"../x", "a/../../x", "a//b", "a/./b", "a\\b", "a\nb", "a/"}) {
    Json json = catalog_json();
    json["models"][0]["sources"][0]["include"][0] = path;
    refused(json);
  }
  for (const char* text : {"", "[]", "{}", "{\"models\": []}", "{\"models\": {}, \"adapters\": []}",
                           "{\"models\": [], \"adapters\": [], \"models\": []}"}) {
    EXPECT_THROW(parse_catalog(text, "x"), IoError) << text;
  }
  EXPECT_THROW(parse_catalog(std::string("{\"models\": [], \"adapters\": []\0}", 31), "x"),
               IoError);
}

TEST(Catalog, HasEveryImageModelAndItsGates) {
  struct Row {
    const char* id;
    int min_gb, recommended_gb;
    bool restricted;
  };
  const Row rows[] = {
      {"image-klein-nano", 8, 16, false},      {"image-klein-max", 24, 32, false},
      {"image-klein-base", 24, 32, false},     {"image-klein-9b", 48, 64, true},
      {"image-klein-base-9b", 64, 96, true},   {"image-klein-shared", 8, 16, false},
      {"image-bonsai-binary", 16, 24, false},  {"image-bonsai-ternary", 12, 16, false},
      {"image-zimage-nano", 12, 16, false},    {"image-zimage-max", 48, 64, false},
      {"image-zimage-base", 48, 64, false},    {"image-hidream-o1", 96, 128, false},
      {"image-hidream-o1-dev", 48, 64, false}, {"image-krea2-raw", 96, 128, true},
      {"image-krea2-turbo", 96, 128, true},    {"image-ideogram4-sdnq-uint4", 48, 64, true},
      {"image-3d-triposr", 16, 32, false},     {"image-3d-instantmesh-base", 24, 48, false},
      {"image-3d-trellis2-4b", 64, 128, true},
  };
  for (const Row& row : rows) {
    const CatalogModel* model = find_catalog_model(row.id);
    ASSERT_NE(model, nullptr) << row.id;
    EXPECT_EQ(model->min_memory_gb, row.min_gb) << row.id;
    EXPECT_EQ(model->recommended_memory_gb, row.recommended_gb) << row.id;
    EXPECT_EQ(model->restricted(), row.restricted) << row.id;
    EXPECT_FALSE(model->family.empty()) << row.id;
    if (row.id == std::string("image-klein-shared")) continue;
    ASSERT_FALSE(model->sources.empty()) << row.id;
    EXPECT_TRUE(model->download_bytes) << row.id;
    EXPECT_FALSE(model->supports.empty()) << row.id;
    for (const HubSource& source : model->sources) {
      EXPECT_FALSE(source.include.empty()) << row.id;  // a whole repository may hold the double
      EXPECT_TRUE(is_commit(source.revision) || source.revision == "main") << row.id;
    }
  }
  const CatalogModel& base = *find_catalog_model("image-klein-base-9b");
  EXPECT_TRUE(base.needs_token);
  EXPECT_EQ(base.sources.size(), 5U);
  EXPECT_EQ(base.default_steps, 50);
  EXPECT_EQ(base.download_bytes, int64_t{48} << 30);
  const CatalogModel& trellis = *find_catalog_model("image-3d-trellis2-4b");
  int64_t pinned = 0;
  for (const HubSource& source : trellis.sources) {
    for (const PinnedFile& pin : source.pins) pinned += pin.bytes;
  }
  EXPECT_EQ(pinned, 11'010'775'158);
  EXPECT_EQ(trellis.sources[2].mount, "dependencies/dinov3");
}

TEST(Catalog, TermsAreComplete) {
  for (const CatalogModel& model : catalog_models()) {
    EXPECT_FALSE(model.restricted() && model.sources.empty()) << model.id;
    for (const UsageTerms& terms : model.terms) {
      EXPECT_NE(terms.license_url.find(terms.source_repository), std::string::npos) << model.id;
    }
  }
}

TEST(Catalog, FindsByIdAndByRepository) {
  ASSERT_NE(find_catalog_model("image-klein-nano"), nullptr);
  EXPECT_EQ(find_catalog_model("  IMAGE-Klein-nano\n"), find_catalog_model("image-klein-nano"));
  EXPECT_EQ(find_catalog_model("STEREOVOID/flux2-klein-4b-4bit"),
            find_catalog_model("image-klein-nano"));
  EXPECT_EQ(find_catalog_model("tongyi-mai/z-image-turbo")->id, "image-zimage-max");
  for (const char* none : {"", " ", "klein", "image-klein-nano/", "org/repo"}) {
    EXPECT_EQ(find_catalog_model(none), nullptr) << none;
  }
}

TEST(Names, RelativePathsStayInside) {
  for (const char* path : {"a", "a/b.c", "a b/c", "model-*.safetensors", "**", "a/**/b"}) {
    EXPECT_TRUE(is_relative_path(path)) << path;
  }
  for (const std::string& path :
       {std::string(), std::string("/a"), std::string("a/"), std::string(".."), std::string("a/.."),
        std::string("../a"), std::string("."), std::string("a//b"), std::string("a\\b"),
        std::string("a\0b", 3), std::string("a\x7f"), std::string(256, 'a'),
        std::string(300, 'a') + "/b", std::string(600, 'a')}) {
    EXPECT_FALSE(is_relative_path(path)) << path;
  }
}

}  // namespace
}  // namespace mere
