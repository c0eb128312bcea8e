// A home of its own for one test: HOME and XDG_DATA_HOME lead into a temporary folder, which is
// removed afterwards, and the variables of the environment that matter are put back.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/files.h"

namespace mere {

class TemporaryHome {
 public:
  TemporaryHome() {
    std::string name = (fs::temp_directory_path() / "mere-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = fs::canonical(name);
    set("HOME", path_.string());
    set("XDG_DATA_HOME", (path_ / "data").string());
  }
  ~TemporaryHome() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  TemporaryHome(const TemporaryHome&) = delete;
  TemporaryHome& operator=(const TemporaryHome&) = delete;

  const fs::path& path() const { return path_; }

  // nullopt: not set.
  void set(const std::string& name, const std::optional<std::string>& value) {
    const char* old = std::getenv(name.c_str());
    before_.try_emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }

 private:
  fs::path path_;
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace mere
