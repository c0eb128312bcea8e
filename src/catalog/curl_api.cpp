#include "catalog/curl_api.h"

#include <dlfcn.h>

#include "core/error.h"

namespace mere {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";

[[noreturn]] void fail(const std::string& what) {
  throw IoError{{"curl_missing", kLibrary, what, "install libcurl 4 (package libcurl4)"}};
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr) fail(std::string(kLibrary) + " has no " + name);
  function = reinterpret_cast<Function>(symbol);
}

CurlApi load() {
  // Never unloaded: it keeps state of the process.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(std::string("downloads need ") + kLibrary);
  CurlApi api{};
  find(library, "curl_easy_cleanup", api.easy_cleanup);
  find(library, "curl_easy_init", api.easy_init);
  find(library, "curl_easy_reset", api.easy_reset);
  find(library, "curl_easy_setopt", api.easy_setopt);
  find(library, "curl_easy_strerror", api.easy_strerror);
  find(library, "curl_free", api.free);
  find(library, "curl_getdate", api.getdate);
  find(library, "curl_global_init", api.global_init);
  find(library, "curl_multi_add_handle", api.multi_add_handle);
  find(library, "curl_multi_cleanup", api.multi_cleanup);
  find(library, "curl_multi_info_read", api.multi_info_read);
  find(library, "curl_multi_init", api.multi_init);
  find(library, "curl_multi_perform", api.multi_perform);
  find(library, "curl_multi_poll", api.multi_poll);
  find(library, "curl_multi_remove_handle", api.multi_remove_handle);
  find(library, "curl_slist_append", api.slist_append);
  find(library, "curl_slist_free_all", api.slist_free_all);
  find(library, "curl_url", api.url);
  find(library, "curl_url_cleanup", api.url_cleanup);
  find(library, "curl_url_get", api.url_get);
  find(library, "curl_url_set", api.url_set);
  if (api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) fail("libcurl does not start");
  return api;
}

}  // namespace

const CurlApi& curl() {
  static const CurlApi api = load();
  return api;
}

}  // namespace mere
