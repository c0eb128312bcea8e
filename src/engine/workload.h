// What a job asks of the machine: its command, its model, and the class these give it.
//
//   Workload workload = workload_of({"image", "generate"});
//   workload.estimate_bytes = weights + activations;
//   if (resource_class(workload)) { /* it takes a ticket: engine/admission.h */ }
//
// Two departures from a plain table of commands, both for small machines:
// - A job that is known to need less than 1 GiB takes no ticket. The model that ships with the
//   program draws at once, however busy or small the machine is.
// - A job that knows what it needs is held to that and not to the minimum of its class: "standard"
//   asks for 16 GiB, which a laptop of 16 GiB never has free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/catalog.h"

namespace mere {

inline constexpr int64_t kGib = int64_t{1} << 30;

enum class ResourceClass { kSmall, kStandard, kLarge };

// "small", "standard", "large".
std::string_view resource_class_name(ResourceClass resource_class);
std::optional<ResourceClass> find_resource_class(std::string_view name);

struct Workload {
  std::string label;                  // the command: "image generate"
  std::optional<ResourceClass> base;  // of the command; nullopt: takes no ticket
  bool inspects = false;              // --help, --dry-run, --preflight, ...: computes nothing
  bool names_large_model = false;     // a model whose name alone makes the job large
  std::string model;                  // --model as it was given; may be empty

  // What is known of the model; absent: unknown.
  std::optional<int64_t> model_bytes;       // of its files, or the catalog's estimate
  std::optional<int64_t> local_file_bytes;  // --model names a regular file
  int min_memory_gb = 0;                    // that the catalog asks of the machine; 0: unknown
  // Memory the job itself says it needs, weights included.
  std::optional<int64_t> estimate_bytes;
  // The user vouches for the memory (--memory-limit): the job may wait for it, and is not refused.
  bool memory_is_vouched_for = false;
};

// The workload of a command line, program name left out, by its words alone.
Workload workload_of(const std::vector<std::string>& arguments);

// Adds what the catalog knows of the model.
void add_catalog_facts(Workload& workload, const CatalogModel& model);
// Measures the regular file that --model names, if it does.
void add_local_file(Workload& workload);

// The class of a workload; nullopt: it runs without a ticket.
std::optional<ResourceClass> resource_class(const Workload& workload);

// Permits of a machine with so much memory: 1, 2, 4 or 6.
int capacity_permits(int64_t physical_bytes);
// Permits that a job of the class takes of them.
int permits_of(ResourceClass resource_class, int capacity);
// Memory that must be reclaimable when the job starts: the class's minimum, or what the job says it
// needs if that is less.
int64_t memory_needed(ResourceClass resource_class, const Workload& workload);

}  // namespace mere
