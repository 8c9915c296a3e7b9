// SPDX-License-Identifier: Apache-2.0
#include "runtime/language/program_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kasane::runtime {
namespace {

/// Lies in front of the program's bytes.
struct Record {
  std::uint64_t seal;   ///< of address, bytes and site
  std::uint64_t bytes;  ///< asked for
  const void* site;
  std::uint64_t lead;  ///< from the allocation's start to the program's bytes
};
static_assert(sizeof(Record) == kRecordBytes);
/// Lies at the start of an allocation whose record comes later because of alignment.
struct Pointer {
  std::uint64_t seal;
  std::uint64_t lead;
};
constexpr std::size_t kTail = 16;
constexpr unsigned char kTailByte = 0xA5;

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}
std::uint64_t seal_of(std::uint64_t address, const Record& r) noexcept {
  return mix(address ^
             mix(r.bytes ^ mix(reinterpret_cast<std::uintptr_t>(r.site) ^ mix(r.lead ^ 0x4b6173616e65u))));
}
std::uint64_t freed_seal(std::uint64_t address) noexcept { return mix(address ^ 0x6672656564u); }
std::uint64_t pointer_seal(std::uint64_t address, std::uint64_t lead) noexcept {
  return mix(address ^ mix(lead ^ 0x706f696e74u));
}

std::uint64_t address_of(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }
Record* record_before(void* p) noexcept {
  return reinterpret_cast<Record*>(static_cast<std::byte*>(p) - sizeof(Record));
}

[[noreturn, gnu::cold]] void report(const std::string& text) {
  std::fprintf(stderr, "kasane: heap check: %s\n", text.c_str());
  std::abort();
}

Result<void*> checked_allocate(Runtime& runtime, std::size_t bytes, std::size_t align, Placement placement,
                               const void* site, InitialBytes initial) {
  const std::size_t lead = std::max(sizeof(Record), align);
  if (bytes > ~std::size_t{0} - lead - kTail)
    return fail(Errc::out_of_memory,
                "allocate: " + std::to_string(bytes) + " bytes are more than there can be");
  const std::size_t all = bytes + lead + kTail;
  auto block = runtime.allocate(all, align, placement, initial);
  if (!block) return block;
  std::byte* p = static_cast<std::byte*>(*block) + lead;
  Record record{0, bytes, site, lead};
  record.seal = seal_of(address_of(p), record);
  *record_before(p) = record;
  if (lead != sizeof(Record)) *static_cast<Pointer*>(*block) = {pointer_seal(address_of(*block), lead), lead};
  std::memset(p + bytes, kTailByte, kTail);
  return p;
}

/// The record of p, after a check of the marks around its bytes.
Record checked_record(Runtime& runtime, void* p, const char* what, const void* site) {
  if (!runtime.in_heap(p))
    report(fmt::format("{} of {}, which is not from the global heap, at {}", what, p, site_text(site)));
  const Record record = *record_before(p);
  if (record.seal == freed_seal(address_of(p))) {
    report(fmt::format("{} of {}, which is free already (it had {} bytes, allocated at {}), at {}", what, p,
                       record.bytes, site_text(record.site), site_text(site)));
  }
  if (record.seal != seal_of(address_of(p), record)) {
    report(fmt::format(
        "{} of {}: no allocation begins there, or the bytes in front of it were overwritten; at {}", what, p,
        site_text(site)));
  }
  const auto* tail = static_cast<const unsigned char*>(p) + record.bytes;
  for (std::size_t i = 0; i < kTail; ++i) {
    if (tail[i] == kTailByte) continue;
    report(fmt::format("{} of {}: byte {} behind its {} bytes was overwritten; allocated at {}, seen at {}",
                       what, p, i, record.bytes, site_text(record.site), site_text(site)));
  }
  return record;
}

void checked_free(Runtime& runtime, void* p, const void* site) {
  const Record record = checked_record(runtime, p, "free", site);
  record_before(p)->seal = freed_seal(address_of(p));
  runtime.deallocate(static_cast<std::byte*>(p) - record.lead);
}

}  // namespace

Result<void*> program_allocate(Runtime& runtime, std::size_t bytes, std::size_t align, Placement placement,
                               const void* site, InitialBytes initial) {
  if (runtime.options().check_heap) [[unlikely]]
    return checked_allocate(runtime, bytes, align, placement, site, initial);
  return runtime.allocate(bytes, align, placement, initial);
}

void program_free(Runtime& runtime, void* p, const void* site) {
  if (!runtime.options().check_heap) [[likely]]
    return runtime.deallocate(p);
  checked_free(runtime, p, site);
}

Result<void*> program_reallocate(Runtime& runtime, void* p, std::size_t bytes, const void* site) {
  const bool check = runtime.options().check_heap;
  const std::size_t had = check ? checked_record(runtime, p, "realloc", site).bytes : runtime.usable_size(p);
  if (!check && runtime.resize(p, bytes)) return p;
  auto moved = program_allocate(runtime, bytes, 16, runtime.placement_like(p), site);
  if (!moved) return moved;
  // By the caller's own loads and stores: it may have unreleased writes, which get and put would miss.
  std::memcpy(*moved, p, std::min(had, bytes));
  program_free(runtime, p, site);
  return moved;
}

std::size_t program_usable_size(Runtime& runtime, const void* p) {
  if (!runtime.options().check_heap) return runtime.usable_size(p);
  return checked_record(runtime, const_cast<void*>(p), "usable_size", nullptr).bytes;
}

std::uint64_t record_offset(std::uint64_t block_address, const void* first_16_bytes) noexcept {
  Pointer pointer;
  std::memcpy(&pointer, first_16_bytes, sizeof pointer);
  return pointer.seal == pointer_seal(block_address, pointer.lead) ? pointer.lead - sizeof(Record) : 0;
}

std::optional<AllocationRecord> record_of(std::uint64_t address, const void* record_bytes) noexcept {
  Record record;
  std::memcpy(&record, record_bytes, sizeof record);
  if (record.seal != seal_of(address + sizeof record, record)) return std::nullopt;
  return AllocationRecord{record.bytes, record.site};
}

std::string site_text(const void* site) {
  if (site == nullptr) return "an unknown place";
  Dl_info info{};
  if (::dladdr(site, &info) == 0 || info.dli_fname == nullptr) return fmt::format("{}", site);
  const char* slash = std::strrchr(info.dli_fname, '/');
  const std::string at = fmt::format("{}+{:#x}", slash != nullptr ? slash + 1 : info.dli_fname,
                                     address_of(site) - address_of(info.dli_fbase));
  return info.dli_sname != nullptr ? fmt::format("{} ({})", info.dli_sname, at) : at;
}

}  // namespace kasane::runtime
