// Values of options. CLI11's own numbers wrap negative seeds, read 010 as eight and take an
// overflow for the largest number, so options are read as text and parsed here. Each throws
// UsageError naming `field`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/image_request.h"

namespace mere::cli {

int64_t parse_int(const std::string& text, const char* field);
uint64_t parse_seed(const std::string& text, const char* field);
double parse_number(const std::string& text, const char* field);
// A number from `low` to `high`; an error repeats the text as it was given.
double parse_number_within(const std::string& text, double low, double high, const char* field);
// The shortest text that reads back as the same number.
std::string number_text(float number);
std::string number_text(double number);

// "1,0.75,0.5": at least one number.
std::vector<double> parse_numbers(const std::string& text, const char* field);

// "8GB", "512MB", "1.5GiB" or plain bytes; GB is 10^9, GiB is 2^30.
int64_t parse_memory(const std::string& text, const char* field);

// "PATH" or "PATH=SCALE", scale -100 to 100; when the whole text names a file it is the path, so
// paths may hold '='.
LoraRequest parse_lora(const std::string& text, const char* field);

// "auto" or "f32".
Precision parse_precision(const std::string& text, const char* field);

// Refuses an empty value: an empty path or id means a mistake in a script, never a default.
std::string non_empty(const std::string& text, const char* field);

}  // namespace mere::cli
