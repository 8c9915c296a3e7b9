// SPDX-License-Identifier: Apache-2.0
// The loaded objects as their ELF headers in memory describe them, and which of them are the program: the
// executable, and the libraries that --globals-of names (start/program_libraries.h).
//
// Thread safety: set_…() before other threads exist; the rest from any thread. Allocates.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kasane::runtime {

struct AddressRange {
  std::uintptr_t begin = 0, end = 0;
  [[nodiscard]] bool holds(std::uintptr_t a) const noexcept { return a - begin < end - begin; }
};

/// A loaded object. A value; what it refers to lives as long as the object stays loaded.
struct Image {
  std::uintptr_t base = 0;  ///< what is added to the addresses in its file
  std::span<const ElfW(Phdr)> headers;
  const char* file = nullptr;  ///< its path, as the dynamic loader opened it; not null

  [[nodiscard]] const ElfW(Phdr) * header(std::uint32_t type) const noexcept;
  [[nodiscard]] ElfW(Dyn) * dynamic() const noexcept;
  /// Of .dynamic; null: it has none with this tag.
  [[nodiscard]] ElfW(Dyn) * entry(std::int64_t tag) const noexcept;
  [[nodiscard]] std::uint64_t value(std::int64_t tag) const noexcept;
  /// Of an entry that is an address; 0: there is none.
  [[nodiscard]] std::uintptr_t address(std::int64_t tag) const noexcept;
  /// Of an entry that is a place in the string table; empty: there is none.
  [[nodiscard]] std::string_view text(const ElfW(Dyn) * entry) const noexcept;
  /// Its soname, or the last part of its path; of the executable "the program".
  [[nodiscard]] std::string_view name() const noexcept;
  /// Whether the address lies in one of its segments.
  [[nodiscard]] bool holds(const void*) const noexcept;
  /// The calling OS thread's block of its thread_locals; data() is null where the thread has none yet.
  [[nodiscard]] std::span<const std::byte> thread_locals() const noexcept;
};

/// All, in the loader's order: the executable first.
[[nodiscard]] std::vector<Image> loaded_images();

/// The executable, then the libraries that are the program's, in the order of their construction.
[[nodiscard]] std::vector<Image> program_images();
void set_program_libraries(std::vector<Image>);

/// Those that --code-of names: they only compute.
[[nodiscard]] const std::vector<Image>& computing_images() noexcept;
void set_computing_images(std::vector<Image>);

}  // namespace kasane::runtime
