// Shows a picture in a terminal that speaks the kitty, iTerm2 or sixel graphics protocol.
#pragma once

#include <optional>
#include <string>

#include "media/image.h"

namespace mere {

enum class TerminalProtocol { kKitty, kIterm2, kSixel };

// The protocol of the terminal, judged from the environment (TERM, TERM_PROGRAM, KITTY_WINDOW_ID,
// LC_TERMINAL, ...) and MERERUN_SHOW_PROTOCOL=kitty|iterm2|sixel|none, which wins. nullopt:
// unknown.
std::optional<TerminalProtocol> detect_terminal_protocol();

// The escape sequence that shows `image`, followed by a newline.
std::string terminal_picture(const Image& image, TerminalProtocol protocol);

}  // namespace mere
