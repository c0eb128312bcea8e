#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "core/json.h"
#include "media/image.h"

namespace mere::cli {
namespace {

struct InfoOptions {
  std::string file;
  bool json = false;
};

// Text of a picture for a terminal: lines stay, other control characters go.
std::string shown_lines(const std::string& text) {
  std::string out;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    out +=
        "  " + printable(std::string_view(text).substr(start, end - start), size_t{1} << 20) + "\n";
    start = end + 1;
  }
  return out;
}

Document info_document(const std::string& file, const ImageInfo& info) {
  Document document = {
      {"status", "completed"}, {"file", fs::absolute(file).lexically_normal().string()},
      {"format", info.format}, {"width", info.width},
      {"height", info.height}, {"text", Document::object()}};
  for (const auto& [key, text] : info.text) {
    if (!document["text"].contains(key)) document["text"][key] = text;
  }
  document["request"] = nullptr;
  for (const auto& [key, text] : info.text) {
    if (key != "mere.run") continue;
    try {
      document["request"] = Document(parse_json(text, file));
    } catch (const Error&) {
      // Another program's entry of this name; its text is in "text".
    }
    break;
  }
  return document;
}

int run_info(const InfoOptions& options) {
  std::error_code ec;
  if (!fs::exists(options.file, ec)) {
    throw UsageError{{"file_not_found", "FILE", "no picture file at " + options.file, ""}};
  }
  const ImageInfo info = read_image_info(options.file);
  if (options.json) {
    print_document(info_document(options.file, info));
    return 0;
  }
  std::string text = "format: " + info.format + "\nsize: " + std::to_string(info.width) + "x" +
                     std::to_string(info.height) + "\n";
  for (const auto& [key, value] : info.text) text += shown(key) + ":\n" + shown_lines(value);
  print_result(text);
  return 0;
}

}  // namespace

void add_image_info_command(CLI::App& image, Context& context) {
  CLI::App* command =
      image.add_subcommand("info", "Show format, size and stored parameters of a picture");
  const auto options = std::make_shared<InfoOptions>();
  command->add_option("FILE", options->file, "The picture: PNG, JPEG or WebP")
      ->required()
      ->type_name("");
  command->add_flag("--json", options->json, "Print one JSON document; errors too");
  command->callback(
      [options, &context] { context.action = [options] { return run_info(*options); }; });
}

}  // namespace mere::cli
