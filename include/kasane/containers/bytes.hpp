// SPDX-License-Identifier: Apache-2.0
/// @file
/// How containers hold objects: as bytes, which are copied, summed and sent without being looked at as a
/// value. Not for programs.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

namespace kasane::detail::containers {

/// Every byte of it counts in its value, so that a compiler copies all.
template <class Type>
inline constexpr bool kFull = std::has_unique_object_representations_v<Type> || std::is_same_v<Type, float> ||
                              std::is_same_v<Type, double>;

/// The bytes of an object, padding included. A compiler need not copy padding, and may take it for another
/// value at each use; a checksum over it would not be that of what was stored. So an object becomes bytes
/// once, here, where the compiler is told that they are something that it does not know; then they are bytes.
/// What has no default constructor, or constant members, can be held, too.
template <class Type>
struct [[gnu::may_alias]] Bytes {
  alignas(Type) unsigned char of[sizeof(Type)];

  Bytes() noexcept = default;
  explicit Bytes(const Type& object) noexcept {
    std::memcpy(of, static_cast<const void*>(&object), sizeof of);
    if constexpr (!kFull<Type>) asm("" : "+m"(of));
  }
  /// The object that these bytes are.
  [[nodiscard]] const Type& object() const noexcept {
    return *std::launder(reinterpret_cast<const Type*>(of));
  }
};

/// The bytes of n objects.
template <class Type>
class AllBytes {
 public:
  AllBytes(const Type* objects, std::size_t n) {
    if constexpr (kFull<Type>) {
      data_ = reinterpret_cast<const Bytes<Type>*>(objects);
    } else {
      copies_.reserve(n);
      for (std::size_t i = 0; i < n; ++i) copies_.emplace_back(objects[i]);
      data_ = copies_.data();
    }
  }
  AllBytes(const AllBytes&) = delete;
  AllBytes& operator=(const AllBytes&) = delete;
  [[nodiscard]] const Bytes<Type>* data() const noexcept { return data_; }

 private:
  std::vector<Bytes<Type>> copies_;
  const Bytes<Type>* data_;
};

/// What every container asks of what it holds.
template <class Type>
struct Holds {
  static_assert(std::is_trivially_copyable_v<Type>,
                "what a container holds goes from rank to rank as bytes: trivially copyable, text in a "
                "kasane::fixed_string");
  static_assert(std::is_copy_constructible_v<Type>, "containers give out copies of what they hold");
  static_assert(!std::is_const_v<Type> && !std::is_volatile_v<Type>, "what a container holds is not const");
  static_assert(alignof(Type) <= 4096, "what a container holds is aligned to at most 4096 bytes");
  static constexpr std::size_t kAlign = alignof(Type) < 64 ? 64 : alignof(Type);  ///< of arrays of it
};

}  // namespace kasane::detail::containers
