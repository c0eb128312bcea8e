#include "media/terminal_picture.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "pictures.h"

#include "core/error.h"

namespace mere {
namespace {

using namespace test;

constexpr const char* kVariables[] = {
    "MERERUN_SHOW_PROTOCOL", "TMUX",           "STY", "TERM", "LC_TERMINAL", "TERM_PROGRAM",
    "KITTY_WINDOW_ID",       "KONSOLE_VERSION"};

// Puts the environment back, so that tests do not depend on the terminal they run in.
class TerminalPicture : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const char* name : kVariables) {
      unsetenv(name);
      if (before_.count(name)) setenv(name, before_[name].c_str(), 1);
    }
  }

 private:
  std::map<std::string, std::string> before_;
};

std::string decode_base64(const std::string& text) {
  static const std::string kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count >= 8) out += static_cast<char>(bits >> (count -= 8));
  }
  return out;
}

TEST_F(TerminalPicture, ProtocolFollowsTheEnvironment) {
  struct Case {
    std::vector<std::pair<const char*, const char*>> environment;
    std::optional<TerminalProtocol> expected;
  };
  const auto kitty = TerminalProtocol::kKitty;
  const auto iterm2 = TerminalProtocol::kIterm2;
  const auto sixel = TerminalProtocol::kSixel;
  const std::vector<Case> cases = {
      {{}, std::nullopt},
      {{{"TERM", "xterm-256color"}}, std::nullopt},
      {{{"TERM", "dumb"}, {"TERM_PROGRAM", "iTerm.app"}}, std::nullopt},
      {{{"TERM", "xterm-kitty"}}, kitty},
      {{{"TERM", "xterm-256color"}, {"KITTY_WINDOW_ID", "3"}}, kitty},
      {{{"TERM", "xterm-ghostty"}}, kitty},
      {{{"TERM_PROGRAM", "ghostty"}}, kitty},
      {{{"KONSOLE_VERSION", "230800"}}, kitty},
      {{{"TERM_PROGRAM", "iTerm.app"}}, iterm2},
      {{{"LC_TERMINAL", "iTerm2"}}, iterm2},
      {{{"LC_TERMINAL", "other"}}, std::nullopt},
      {{{"TERM_PROGRAM", "WezTerm"}}, iterm2},
      {{{"TERM", "foot"}}, sixel},
      {{{"TERM", "foot-extra"}}, sixel},
      {{{"TERM", "mlterm-256color"}}, sixel},
      {{{"TERM_PROGRAM", "mintty"}}, sixel},
      // Started from a kitty window: the variable is left over.
      {{{"TERM", "foot"}, {"KITTY_WINDOW_ID", "3"}}, sixel},
      {{{"TERM_PROGRAM", "WezTerm"}, {"KITTY_WINDOW_ID", "3"}}, iterm2},
      {{{"TERM", "tmux-256color"}, {"KITTY_WINDOW_ID", "3"}}, std::nullopt},
      {{{"TERM", "xterm-kitty"}, {"TMUX", "/tmp/s,1,0"}}, std::nullopt},
      {{{"TERM", "screen"}, {"LC_TERMINAL", "iTerm2"}}, std::nullopt},
      {{{"TERM", "xterm-kitty"}, {"MERERUN_SHOW_PROTOCOL", "sixel"}}, sixel},
      {{{"TERM", "xterm-kitty"}, {"MERERUN_SHOW_PROTOCOL", "iterm2"}}, iterm2},
      {{{"TERM", "xterm-kitty"}, {"MERERUN_SHOW_PROTOCOL", "none"}}, std::nullopt},
      {{{"TMUX", "/tmp/s,1,0"}, {"MERERUN_SHOW_PROTOCOL", "kitty"}}, kitty},
      {{{"TERM", "xterm-kitty"}, {"MERERUN_SHOW_PROTOCOL", ""}}, kitty},
      {{{"TERM", "xterm"}, {"KITTY_WINDOW_ID", ""}}, std::nullopt},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const char* name : kVariables) unsetenv(name);
    for (const auto& [name, value] : cases[i].environment) setenv(name, value, 1);
    EXPECT_EQ(detect_terminal_protocol(), cases[i].expected) << "case " << i;
  }
  setenv("MERERUN_SHOW_PROTOCOL", "ansi", 1);
  EXPECT_THROW(detect_terminal_protocol(), UsageError);
}

TEST_F(TerminalPicture, KittySequenceCarriesAPngInChunks) {
  const Image image = noise(260, 40);
  const std::string out = terminal_picture(image, TerminalProtocol::kKitty);
  ASSERT_TRUE(out.ends_with("\x1B\\\n"));
  std::string payload;
  size_t at = 0;
  int chunks = 0;
  while (at + 1 < out.size()) {
    const size_t end = out.find("\x1B\\", at);
    ASSERT_NE(end, std::string::npos);
    const std::string part = out.substr(at, end - at);
    const bool last = end + 3 == out.size();
    const std::string head =
        std::string("\x1B_G") + (chunks == 0 ? "a=T,f=100,q=2," : "") + (last ? "m=0;" : "m=1;");
    ASSERT_TRUE(part.starts_with(head)) << chunks;
    EXPECT_LE(part.size() - head.size(), 4096U);
    payload += part.substr(head.size());
    at = end + 2;
    ++chunks;
  }
  EXPECT_GT(chunks, 2);
  EXPECT_EQ(decode_image(decode_base64(payload), "payload").rgb, image.rgb);
}

TEST_F(TerminalPicture, Iterm2SequenceCarriesAPng) {
  const Image image = smooth(300, 2);
  const std::string out = terminal_picture(image, TerminalProtocol::kIterm2);
  ASSERT_TRUE(out.starts_with("\x1B]1337;File=inline=1;size="));
  ASSERT_TRUE(out.ends_with("\a\n"));
  const size_t colon = out.find(':');
  const std::string png = decode_base64(out.substr(colon + 1, out.size() - colon - 3));
  EXPECT_NE(out.find("size=" + std::to_string(png.size()) + ":"), std::string::npos);
  EXPECT_EQ(decode_image(png, "payload").rgb, image.rgb);
}

// Draws a sixel sequence the way a terminal does; -1 where nothing was drawn.
struct Drawn {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<int> color;                   // [height, width] colour number
  std::map<int, std::vector<int>> palette;  // number: percent of red, green, blue
};

Drawn draw_sixel(const std::string& text) {
  Drawn out;
  size_t i = text.find('q') + 1;
  const auto numbers = [&] {
    std::vector<int> values;
    while (i < text.size() && (std::isdigit(text[i]) || (!values.empty() && text[i] == ';'))) {
      if (text[i] == ';') ++i;
      values.push_back(std::atoi(text.c_str() + i));
      while (std::isdigit(text[i])) ++i;
    }
    return values;
  };
  int64_t x = 0;
  int64_t y = 0;
  int color = 0;
  while (i < text.size() && text[i] != '\x1B') {
    const char c = text[i++];
    if (c == '"') {
      const auto raster = numbers();
      out.width = raster.at(2);
      out.height = raster.at(3);
      out.color.assign(static_cast<size_t>(out.width * out.height), -1);
    } else if (c == '#') {
      const auto values = numbers();
      color = values.at(0);
      if (values.size() == 5) out.palette[color] = {values[2], values[3], values[4]};
    } else if (c == '$') {
      x = 0;
    } else if (c == '-') {
      x = 0;
      y += 6;
    } else {
      int count = 1;
      char sixel = c;
      if (c == '!') {
        count = numbers().at(0);
        sixel = text[i++];
      }
      for (; count > 0; --count, ++x) {
        for (int64_t bit = 0; bit < 6; ++bit) {
          if (!((sixel - '?') >> bit & 1)) continue;
          EXPECT_LT(x, out.width);
          EXPECT_LT(y + bit, out.height);
          int& cell = out.color.at(static_cast<size_t>((y + bit) * out.width + x));
          EXPECT_EQ(cell, -1) << "drawn twice";
          cell = color;
        }
      }
    }
  }
  return out;
}

TEST_F(TerminalPicture, SixelDrawsEveryPixelOnceAndCloseToItsColour) {
  const Image image = smooth(256, 101);
  const std::string out = terminal_picture(image, TerminalProtocol::kSixel);
  ASSERT_TRUE(out.starts_with("\x1BP"));
  ASSERT_TRUE(out.ends_with("\x1B\\\n"));
  const Drawn drawn = draw_sixel(out);
  ASSERT_EQ(drawn.width, 256);
  ASSERT_EQ(drawn.height, 101);
  EXPECT_LE(drawn.palette.size(), 256U);
  double sum_drawn = 0;
  double sum_image = 0;
  for (size_t i = 0; i < drawn.color.size(); ++i) {
    ASSERT_GE(drawn.color[i], 0) << "hole at " << i;
    const auto& percent = drawn.palette.at(drawn.color[i]);
    for (size_t c = 0; c < 3; ++c) {
      const int value = percent[c] * 255 / 100;
      ASSERT_LE(std::abs(value - image.rgb[i * 3 + c]), 51);
      sum_drawn += value;
      sum_image += image.rgb[i * 3 + c];
    }
  }
  // Dithering keeps the brightness of areas.
  EXPECT_NEAR(sum_drawn / sum_image, 1.0, 0.01);
}

TEST_F(TerminalPicture, SixelKeepsFlatColoursOfTheCubeFlat) {
  Image image(300, 12);
  for (size_t i = 0; i < image.rgb.size(); ++i)
    image.rgb[i] = i % 3 == 0 ? 255 : i % 3 == 1 ? 0 : 153;
  const Drawn drawn = draw_sixel(terminal_picture(image, TerminalProtocol::kSixel));
  for (int color : drawn.color) ASSERT_EQ(color, drawn.color[0]);
  EXPECT_EQ(drawn.palette.at(drawn.color[0]), (std::vector<int>{100, 0, 60}));
}

TEST_F(TerminalPicture, TinyPicturesAreEnlargedAndLargeOnesFit) {
  const Drawn tiny = draw_sixel(terminal_picture(hard(128, 64), TerminalProtocol::kSixel));
  EXPECT_EQ(tiny.width, 256);
  EXPECT_EQ(tiny.height, 128);
  EXPECT_EQ(tiny.color[0], tiny.color[257]);  // one source pixel is a block of two by two
  const Drawn large = draw_sixel(terminal_picture(smooth(2000, 1), TerminalProtocol::kSixel));
  EXPECT_EQ(large.width, 768);
  EXPECT_EQ(large.height, 1);
  EXPECT_THROW(terminal_picture(Image(), TerminalProtocol::kKitty), InternalError);
}

}  // namespace
}  // namespace mere
