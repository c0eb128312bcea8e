// The functions of libcurl that are used here, loaded when the first of them is asked for.
//
//   curl().easy_setopt(handle, CURLOPT_URL, "https://...");
//
// Linked in the usual way, libcurl and the thirty libraries it brings cost every start of the
// program 5 ms, also where nothing is fetched.
#pragma once

#include <curl/curl.h>

namespace mere {

struct CurlApi {
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_free) free;
  decltype(&::curl_getdate) getdate;
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_cleanup) multi_cleanup;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_url) url;
  decltype(&::curl_url_cleanup) url_cleanup;
  decltype(&::curl_url_get) url_get;
  decltype(&::curl_url_set) url_set;
};

// Initialised for use from any thread. IoError when libcurl is not on the machine.
const CurlApi& curl();

}  // namespace mere
