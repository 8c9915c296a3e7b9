// SPDX-License-Identifier: Apache-2.0
/// @file
/// When two keys of kasane::unordered_map are the same one, and how they are hashed:
///
/// | the key | hash | equality |
/// |---|---|---|
/// | integers, enumerations, pointers, arrays of them, `equal_as_bytes` | of its bytes | of its bytes |
/// | what std::hash takes: float, double, a class that specialises it | std::hash | == |
/// | anything else | the map's third argument | == |
///
/// A class of the second and third kind keeps what std::unordered_map asks for: equal keys have equal hashes.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/bucket.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>

namespace kasane {

/// True: two objects are equal if and only if their bytes are. A program says so of a class of its own that
/// has neither padding nor floating-point numbers, nor an equality that is not that of all its members:
///
///     struct Point { int x, y; };
///     template <> inline constexpr bool kasane::equal_as_bytes<Point> = true;
template <class Type>
inline constexpr bool equal_as_bytes =
    std::has_unique_object_representations_v<Type> && !std::is_class_v<Type> && !std::is_union_v<Type>;
template <class Type, std::size_t kSize>
inline constexpr bool equal_as_bytes<std::array<Type, kSize>> = equal_as_bytes<Type>;
template <class Type>
inline constexpr bool equal_as_bytes<global_ptr<Type>> = true;

namespace detail::containers {

/// All bits of the bytes count in all bits of the result.
[[nodiscard]] inline std::uint64_t hash_bytes(const void* bytes, std::size_t size) noexcept {
  std::uint64_t x = bucket::mix(0x243F6A8885A308D3u, bytes, size);
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}

template <class Type>
inline constexpr bool kView = false;
template <class Char, class Traits>
inline constexpr bool kView<std::basic_string_view<Char, Traits>> = true;
template <class Type, std::size_t kExtent>
inline constexpr bool kView<std::span<Type, kExtent>> = true;

template <class Key>
concept hashed_by_std = requires(const Key& key) {
  { std::hash<Key>{}(key) } -> std::convertible_to<std::uint64_t>;
};

/// The map's own hash.
template <class Key>
struct KeyHash {
  [[nodiscard]] std::uint64_t operator()(const Key& key) const {
    if constexpr (equal_as_bytes<Key>) {
      return hash_bytes(&key, sizeof key);
    } else {
      const std::uint64_t hash = std::hash<Key>{}(key);
      return hash_bytes(&hash, sizeof hash);
    }
  }
};

/// Whether a hash states that its bits may be taken as they are, as is stated to Boost.Unordered: by a member
/// type of this name.
template <class Hash>
concept kAvalanching = requires { typename Hash::is_avalanching; };

/// What a map takes for a key's hash. Other hashes than its own are mixed: the bits of many are alike where
/// keys are, as those of std::hash, which gives integers as they are.
template <class Hash, class Key>
[[nodiscard]] inline std::uint64_t hash_of(const Key& key) {
  if constexpr (std::is_same_v<Hash, KeyHash<Key>> || kAvalanching<Hash>) {
    return Hash{}(key);
  } else {
    const auto hash = static_cast<std::uint64_t>(Hash{}(key));
    return hash_bytes(&hash, sizeof hash);
  }
}

template <class Key>
[[nodiscard]] inline bool same_key(const Key& one, const Key& other) {
  if constexpr (equal_as_bytes<Key> && !std::is_scalar_v<Key>)
    return std::memcmp(&one, &other, sizeof one) == 0;
  else
    return one == other;
}

/// Which keys a map takes.
template <class Key, class Hash>
struct TakesKeys {
  static_assert(!kView<Key>,
                "a view names text or elements that lie elsewhere: use kasane::fixed_string, or std::array");
  static_assert(!equal_as_bytes<Key> || std::has_unique_object_representations_v<Key>,
                "kasane::equal_as_bytes is stated of a key with padding or floating-point numbers");
  static_assert(
      kView<Key> || equal_as_bytes<Key> || hashed_by_std<Key> || !std::is_same_v<Hash, KeyHash<Key>>,
      "when are two keys equal? State kasane::equal_as_bytes, or give a hash (std::hash or the map's "
      "third argument) and ==");
  static_assert(kView<Key> || equal_as_bytes<Key> || std::equality_comparable<Key>, "a key needs ==");
};

}  // namespace detail::containers

}  // namespace kasane
