#include "media/terminal_picture.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "media/sixel.h"

namespace mere {
namespace {

constexpr const char* kOverride = "MERERUN_SHOW_PROTOCOL";
constexpr size_t kKittyChunk = 4096;  // base64 bytes per escape sequence, a limit of the protocol
// The longer side is brought between these: smaller is hard to see on dense screens, larger runs
// off them and is slow over a network.
constexpr int64_t kLeastSide = 256;
constexpr int64_t kMostSide = 768;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct ProtocolName {
  std::string_view name;
  std::optional<TerminalProtocol> protocol;
};
constexpr ProtocolName kProtocols[] = {
    {"kitty", TerminalProtocol::kKitty},
    {"iterm2", TerminalProtocol::kIterm2},
    {"sixel", TerminalProtocol::kSixel},
    {"none", std::nullopt},
};

// First rule that matches wins. An empty `value` matches any value that is set, a trailing '*' any
// that begins so.
struct Rule {
  const char* variable;
  std::string_view value;
  std::optional<TerminalProtocol> protocol;
};
constexpr Rule kRules[] = {
    // Multiplexers inherit the outer terminal's variables but swallow its picture sequences.
    {"TMUX", "", std::nullopt},
    {"STY", "", std::nullopt},
    {"TERM", "tmux*", std::nullopt},
    {"TERM", "screen*", std::nullopt},
    {"TERM", "dumb", std::nullopt},
    // Names of the terminal itself, before the variables that a parent terminal may have left.
    {"TERM", "xterm-kitty", TerminalProtocol::kKitty},
    {"TERM", "xterm-ghostty", TerminalProtocol::kKitty},
    {"TERM", "foot*", TerminalProtocol::kSixel},
    {"TERM", "mlterm*", TerminalProtocol::kSixel},
    {"TERM", "yaft*", TerminalProtocol::kSixel},
    {"TERM", "contour*", TerminalProtocol::kSixel},
    {"TERM_PROGRAM", "iTerm.app", TerminalProtocol::kIterm2},
    {"TERM_PROGRAM", "WezTerm", TerminalProtocol::kIterm2},
    {"TERM_PROGRAM", "ghostty", TerminalProtocol::kKitty},
    {"TERM_PROGRAM", "mintty", TerminalProtocol::kSixel},
    {"KITTY_WINDOW_ID", "", TerminalProtocol::kKitty},
    {"KONSOLE_VERSION", "", TerminalProtocol::kKitty},
    // Survives a remote login, unlike TERM_PROGRAM.
    {"LC_TERMINAL", "iTerm2", TerminalProtocol::kIterm2},
};

bool matches(const Rule& rule) {
  const std::string_view value = variable(rule.variable);
  if (value.empty()) return false;
  if (rule.value.ends_with('*')) {
    return value.starts_with(rule.value.substr(0, rule.value.size() - 1));
  }
  return rule.value.empty() || value == rule.value;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= count ? kDigits[(group >> (18 - 6 * k)) & 63] : '=';
    }
  }
  return out;
}

// Every pixel `factor` times in both directions: keeps the edges of tiny pictures sharp.
Image repeat_pixels(const Image& image, int64_t factor) {
  Image out(image.width * factor, image.height * factor);
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < out.height; ++y) {
    const uint8_t* row = image.rgb.data() + y / factor * image.width * 3;
    for (int64_t x = 0; x < out.width; ++x) to = std::copy_n(row + x / factor * 3, 3, to);
  }
  return out;
}

Image fit_screen(const Image& image) {
  const int64_t side = std::max(image.width, image.height);
  if (side < kLeastSide) return repeat_pixels(image, (kLeastSide + side - 1) / side);
  if (side <= kMostSide) return image;
  const auto scaled = [&](int64_t n) { return std::max<int64_t>(1, n * kMostSide / side); };
  return resize_lanczos(image, scaled(image.width), scaled(image.height));
}

std::string kitty_sequence(std::string_view png) {
  const std::string payload = base64(png);
  std::string out;
  for (size_t at = 0; at < payload.size(); at += kKittyChunk) {
    const bool more = at + kKittyChunk < payload.size();
    out += "\x1B_G";
    // q=2: the terminal must not answer, the answer would land in the user's shell.
    if (at == 0) out += "a=T,f=100,q=2,";
    out += more ? "m=1;" : "m=0;";
    out += payload.substr(at, kKittyChunk);
    out += "\x1B\\";
  }
  return out;
}

std::string iterm2_sequence(std::string_view png) {
  return "\x1B]1337;File=inline=1;size=" + std::to_string(png.size()) + ":" + base64(png) + "\a";
}

}  // namespace

std::optional<TerminalProtocol> detect_terminal_protocol() {
  const std::string_view wanted = variable(kOverride);
  if (!wanted.empty()) {
    for (const ProtocolName& known : kProtocols) {
      if (wanted == known.name) return known.protocol;
    }
    throw UsageError{{"show_protocol", kOverride,
                      std::string(kOverride) + " is '" + std::string(wanted) + "'",
                      "use kitty, iterm2, sixel or none"}};
  }
  for (const Rule& rule : kRules) {
    if (matches(rule)) return rule.protocol;
  }
  return std::nullopt;
}

std::string terminal_picture(const Image& image, TerminalProtocol protocol) {
  if (image.width <= 0 || image.height <= 0) {
    throw InternalError{{"image_invalid", "", "picture without pixels", ""}};
  }
  const Image shown = fit_screen(image);
  switch (protocol) {
    case TerminalProtocol::kKitty:
      return kitty_sequence(encode_image(shown, ImageFormat::kPng, {})) + '\n';
    case TerminalProtocol::kIterm2:
      return iterm2_sequence(encode_image(shown, ImageFormat::kPng, {})) + '\n';
    case TerminalProtocol::kSixel:
      return media::encode_sixel(shown) + '\n';
  }
  throw InternalError{{"show_protocol", "", "unknown terminal protocol", ""}};
}

}  // namespace mere
