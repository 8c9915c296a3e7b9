// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints: arrays of global memory in files, from which a job of any number of ranks can continue.
///
///     kasane::persist(p, n, "grid.ckpt", step);            // replaces the older file at once, or not at all
///     …
///     auto grid = kasane::restore<double>("grid.ckpt");    // in another job: .data, .size, .note
///
/// kasane_persist and kasane_restore in kasane.h say what the effects on memory are, which threads may call
/// and what is left after a failure.
///
/// **Errors**: kasane::error with the system's errno (ENOENT, ENOSPC …); EINVAL: not a checkpoint of such
/// elements; EIO: cut off or damaged, with the chunk.
///
/// **Thread safety**: one call at a time of a path.
#pragma once

#include <kasane/kasane.h>

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <ranges>
#include <string>
#include <type_traits>

namespace kasane {

namespace detail {
template <class Type>
inline constexpr bool is_complex = false;
template <class Type>
inline constexpr bool is_complex<std::complex<Type>> = true;

/// kasane_checkpoint_t::type: what elements are, beside their size; 0 for structures.
template <class Type>
[[nodiscard]] constexpr std::uint32_t checkpoint_type() noexcept {
  return std::is_floating_point_v<Type> ? 1u
         : std::signed_integral<Type>   ? 2u
         : std::unsigned_integral<Type> ? 3u
         : is_complex<Type>             ? 4u
                                        : 0u;
}
}  // namespace detail

/// Saves n objects at p, in global memory. note: a number of the program's that is kept with them. Throws
/// error, as above.
template <class Type>
void persist(const Type* p, std::size_t n, const std::string& path, std::uint64_t note = 0) {
  static_assert(std::is_trivially_copyable_v<Type>, "what is saved is an object's bytes");
  const kasane_checkpoint_t contents{n, sizeof(Type), note, detail::checkpoint_type<Type>()};
  detail::check(kasane_persist(p, &contents, path.c_str()));
}
/// The same of a range.
template <std::ranges::contiguous_range Range>
void persist(const Range& range, const std::string& path, std::uint64_t note = 0) {
  persist(std::ranges::data(range), std::ranges::size(range), path, note);
}

/// What a checkpoint holds.
[[nodiscard]] inline kasane_checkpoint_t describe_checkpoint(const std::string& path) {
  kasane_checkpoint_t contents{};
  detail::check(kasane_describe_checkpoint(path.c_str(), &contents));
  return contents;
}

/// Fills n objects at p from a checkpoint of exactly n such.
template <class Type>
void restore(Type* p, std::size_t n, const std::string& path) {
  static_assert(std::is_trivially_copyable_v<Type>, "what is restored is an object's bytes");
  const kasane_checkpoint_t contents{n, sizeof(Type), 0, detail::checkpoint_type<Type>()};
  detail::check(kasane_restore(p, &contents, path.c_str()));
}
/// The same of a range.
template <std::ranges::contiguous_range Range>
void restore(Range&& range, const std::string& path) {
  restore(std::ranges::data(range), std::ranges::size(range), path);
}

/// An array that came out of a checkpoint.
template <class Type>
struct restored {
  unique_array<Type> data;
  std::size_t size = 0;
  std::uint64_t note = 0;
};
/// Allocates the elements that the checkpoint holds, and reads them; each rank reads what it owns.
template <class Type>
[[nodiscard]] restored<Type> restore(const std::string& path, placement where = placement::block) {
  const kasane_checkpoint_t contents = describe_checkpoint(path);
  const std::size_t align = alignof(Type) < 64 ? 64 : alignof(Type);
  restored<Type> array{
      unique_array<Type>(static_cast<Type*>(allocate(contents.count * sizeof(Type), align, where))),
      contents.count, contents.note};
  restore(array.data.get(), array.size, path);
  return array;
}

}  // namespace kasane
