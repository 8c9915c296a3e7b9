// SPDX-License-Identifier: Apache-2.0
// Maps and sets. A kasane::unordered_map leads from 128 bits of the key's hash to the entry's block: sizes of
// key and value, the key, the value. So both may have any size, and a find reads one block beside the bucket.
#pragma once

#include <kasane/containers/unordered_map.hpp>

#include "acp/element.h"

namespace kasane::acp {

/// Of a key, as good as the key itself. Two keys with the same one are refused.
struct Hash128 {
  Word low, high;
};

}  // namespace kasane::acp

template <>
inline constexpr bool kasane::equal_as_bytes<kasane::acp::Hash128> = true;

namespace kasane::acp {

struct EntryHead {
  Word key_bytes, value_bytes;
};

struct Table : kasane::unordered_map<Hash128, Word>::handle {
  using Handle = kasane::unordered_map<Hash128, Word>::handle;
  using Handle::destroy, Handle::make;
  void free_elements();

  /// The key's block; ACP_GA_NULL: there is none.
  [[nodiscard]] acp_ga_t find_block(acp_element_t key) const;
  /// False: the key is there.
  [[nodiscard]] bool insert_pair(const acp_pair_t& pair) const;
  void remove(acp_element_t key) const;
  [[nodiscard]] std::size_t retrieve(const acp_pair_t& pair) const;
  void empty_it();

  [[nodiscard]] acp_map_it_t first() const;
  [[nodiscard]] static acp_map_it_t after(const acp_map_it_t& it);
  [[nodiscard]] static acp_pair_t pair_at(acp_ga_t block);
};

struct MapBody : Table {
  static constexpr Word kMark = 0x6163'706D'6170'2121u;
  static constexpr const char* kName = "map";
};
struct SetBody : Table {
  static constexpr Word kMark = 0x6163'7073'6574'2121u;
  static constexpr const char* kName = "set";
};

/// Throws error EINVAL: no such ranks.
template <class Body>
[[nodiscard]] acp_ga_t create_table(int num_ranks, const int* ranks, int rank) {
  const std::uint32_t at = rank_named(rank);
  if (num_ranks < 1 || ranks == nullptr) fail(EINVAL, "there are no ranks for the entries");
  std::vector<std::uint32_t> all;
  for (int i = 0; i < num_ranks; ++i) all.push_back(rank_named(ranks[i]));
  return Record<Body>::create(0, at, [&](Body& body) { body.make(all); });
}

}  // namespace kasane::acp
