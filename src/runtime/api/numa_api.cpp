// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/numa_api.h"

#include <fmt/format.h>
#include <kasane/numa.h>

#include <cerrno>
#include <fstream>

#include "runtime/api/api_error.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

constexpr std::size_t kOsPage = 4096;

}  // namespace

NumaRequest numa_request_of(kasane_placement_t placement, std::uint64_t argument) noexcept {
  using Kind = NumaRequest::Kind;
  constexpr auto flags = static_cast<unsigned>(KASANE_PLACEMENT_FIXED) | KASANE_PLACEMENT_STRICT;
  const auto all = static_cast<unsigned>(placement);
  const bool strict = (all & KASANE_PLACEMENT_STRICT) != 0;
  switch (static_cast<kasane_placement_t>(all & ~flags)) {
    case KASANE_PLACEMENT_NUMA:
      if (argument >= topo::kMostNumaNodes) return {Kind::node, {}, strict, argument};
      return {Kind::node, topo::NodeSet().set(argument), strict, 0};
    case KASANE_PLACEMENT_NUMA_INTERLEAVE: return {Kind::interleave, topo::NodeSet(argument), strict, 0};
    case KASANE_PLACEMENT_NUMA_WEIGHTED: return {Kind::weighted, topo::NodeSet(argument), strict, 0};
    case KASANE_PLACEMENT_NUMA_BLOCKS: return {Kind::blocks, topo::NodeSet(argument), strict, 0};
    default: return {};
  }
}

Result<void> check_on_nodes(Runtime& runtime, void* p, std::size_t bytes, const topo::NodeSet& nodes) {
  auto* const first = static_cast<volatile std::byte*>(p);
  for (std::size_t at = 0; at < bytes; at += kOsPage) first[at] = std::byte{0};
  first[bytes - 1] = std::byte{0};
  const auto pages = runtime.numa_where(p, bytes);
  KASANE_TRY(pages);
  if (pages->misplaced == 0 && pages->absent == 0) return {};
  std::uint64_t all = pages->absent;
  for (const std::uint64_t n : pages->on) all += n;
  return fail(
      Errc::out_of_memory,
      fmt::format("{} of {} pages are not on NUMA node {} ({} lie on others, {} have left DRAM); it has "
                  "no more room, or --dram is too small",
                  pages->misplaced + pages->absent, all, topo::nodes_text(nodes), pages->misplaced,
                  pages->absent));
}

}  // namespace kasane::runtime

using kasane::runtime::api_fail;
using kasane::runtime::Runtime;

extern "C" {

int kasane_numa_bind(void* pointer, size_t bytes, kasane_placement_t placement, uint64_t argument) {
  constexpr const char* call = "kasane::numa::bind";
  Runtime* r = Runtime::current();
  if (r == nullptr) return kasane::runtime::api_fail_not_running(call);
  const auto request = kasane::runtime::numa_request_of(placement, argument);
  if (request.kind == kasane::runtime::NumaRequest::Kind::none && placement != KASANE_PLACEMENT_LOCAL)
    return api_fail(EINVAL, call, "the placement names no NUMA nodes, nor is it KASANE_PLACEMENT_LOCAL");
  auto bound = r->numa_bind(pointer, bytes, request);
  if (bound && request.strict) {
    const auto pages = r->numa_where(pointer, bytes);
    if (!pages) return api_fail(pages.error(), call);
    if (pages->misplaced != 0)
      return api_fail(
          ENOMEM, call,
          fmt::format("{} pages are not on the nodes that were named: these have no more room, or "
                      "other ranks or devices use the pages",
                      pages->misplaced)
              .c_str());
  }
  return bound ? 0 : api_fail(bound.error(), call);
}

int kasane_numa_where(const void* pointer, size_t bytes, uint64_t* on, uint32_t nodes, uint64_t* absent,
                      uint64_t* misplaced) {
  constexpr const char* call = "kasane::numa::where";
  Runtime* r = Runtime::current();
  if (r == nullptr) return kasane::runtime::api_fail_not_running(call);
  const auto pages = r->numa_where(pointer, bytes);
  if (!pages) return api_fail(pages.error(), call);
  for (uint32_t n = 0; n < nodes; ++n) on[n] = n < pages->on.size() ? pages->on[n] : 0;
  if (absent != nullptr) *absent = pages->absent;
  if (misplaced != nullptr) *misplaced = pages->misplaced;
  return 0;
}

uint32_t kasane_numa_nodes(uint32_t* numbers, uint32_t most) {
  const Runtime* r = Runtime::current();
  const kasane::topo::NodeSet nodes = r != nullptr ? r->numa_nodes() : kasane::topo::memory_nodes();
  uint32_t found = 0;
  for (uint32_t n = 0; n < kasane::topo::kMostNumaNodes; ++n) {
    if (!nodes[n]) continue;
    if (found < most) numbers[found] = n;
    ++found;
  }
  return found;
}

uint32_t kasane_numa_here(void) { return kasane::topo::current_node(); }

uint32_t kasane_numa_distance(uint32_t from, uint32_t to) {
  const kasane::ult::RuntimeSection section;
  std::ifstream row(fmt::format("/sys/devices/system/node/node{}/distance", from));
  std::ifstream online("/sys/devices/system/node/online");
  std::string list;
  online >> list;
  const kasane::topo::NodeSet nodes = kasane::topo::parse_nodes(list);
  for (uint32_t n = 0, distance = 0; n < kasane::topo::kMostNumaNodes && row; ++n)
    if (nodes[n] && row >> distance && n == to) return distance;
  return from == to ? 10 : 0;
}

}  // extern "C"
