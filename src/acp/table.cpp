// SPDX-License-Identifier: Apache-2.0
#include "acp/table.h"

#include <cstring>

namespace kasane::acp {
namespace {

using detail::bucket::mix;
using It = Table::Handle::iterator;
static_assert(sizeof(It) <= sizeof(acp_map_it_t::state) && std::is_trivially_copyable_v<It>);

/// A key as bytes here, and its hash.
struct Key {
  std::vector<char> bytes;
  Hash128 hash;
  explicit Key(acp_element_t key) : bytes(key.size) {
    if (key.size != 0) Far::read(bytes.data(), pointer(key.ga), key.size);
    const Word low = mix(0x452821E638D01377u, bytes.data(), key.size);
    const Word high = mix(0xBE5466CF34E90C6Cu ^ key.size, bytes.data(), key.size);
    hash = {low * 0xD6E8FEB86659FD93u ^ high >> 31, high * 0x9E3779B97F4A7C15u ^ low >> 29};
  }
};

[[nodiscard]] constexpr std::size_t value_offset(std::size_t key_bytes) noexcept {
  return sizeof(EntryHead) + (key_bytes + 15) / 16 * 16;
}

enum class Same { yes, no, gone };
/// Whether the entry's block has this key. gone: the block is no entry any more.
[[nodiscard]] Same compare(acp_ga_t block, const Key& key) {
  std::vector<char> copy(sizeof(EntryHead) + key.bytes.size());
  if (kasane_get(copy.data(), pointer(block), copy.size()) != 0) return Same::gone;
  EntryHead head;
  std::memcpy(&head, copy.data(), sizeof head);
  if (head.key_bytes != key.bytes.size()) return Same::no;
  return std::equal(key.bytes.begin(), key.bytes.end(), copy.begin() + sizeof head) ? Same::yes : Same::no;
}

/// Values of at most so many bytes are written together with their keys.
constexpr std::size_t kFew = 1024;

/// An entry's block.
[[nodiscard]] Element entry_of(const Key& key, acp_element_t value, std::uint32_t rank) {
  const std::size_t at = value_offset(key.bytes.size());
  Element e(at + value.size, rank);
  const bool together = value.size <= kFew;
  std::vector<char> block(together ? at + value.size : at);
  const EntryHead head{key.bytes.size(), value.size};
  std::memcpy(block.data(), &head, sizeof head);
  std::copy(key.bytes.begin(), key.bytes.end(), block.begin() + sizeof head);
  if (together && value.size != 0) Far::read(block.data() + at, pointer(value.ga), value.size);
  Far::write(pointer(e.ga()), block.data(), block.size());
  if (!together) detail::check(kasane_copy(pointer(e.ga() + at), pointer(value.ga), value.size, nullptr));
  return e;
}

[[nodiscard]] acp_ga_t find_key(const Table& table, const Key& key) {
  for (detail::containers::Backoff wait;; wait.pause()) {
    const std::optional<Word> block = table.find(key.hash);
    if (!block) return ACP_GA_NULL;
    if (compare(*block, key) == Same::yes) return *block;
    // It was removed, and the block used again; or it is another key's.
    if (table.find(key.hash) == block && compare(*block, key) == Same::no) return ACP_GA_NULL;
  }
}

[[nodiscard]] acp_map_it_t wrap(const It& inside) noexcept {
  acp_map_it_t it{};
  if (inside == std::default_sentinel) return it;
  it.elem = (*inside).value;
  std::memcpy(it.state, static_cast<const void*>(&inside), sizeof inside);
  return it;
}

}  // namespace

acp_ga_t Table::find_block(acp_element_t key) const { return find_key(*this, Key(key)); }

bool Table::insert_pair(const acp_pair_t& pair) const {
  const Key key(pair.first);
  if (contains(key.hash)) {
    if (find_key(*this, key) != ACP_GA_NULL) return false;
    if (contains(key.hash)) fail(EINVAL, "another key has the same hash of 128 bits");
  }
  Element e = entry_of(key, pair.second, rank_of(key.hash));
  if (!insert(key.hash, e.ga())) return false;
  e.keep();
  return true;
}

void Table::remove(acp_element_t key) const {
  const Key k(key);
  if (find_key(*this, k) == ACP_GA_NULL) return;
  if (const std::optional<Word> block = take(k.hash)) Job::here().memory.free(*block);
}

std::size_t Table::retrieve(const acp_pair_t& pair) const {
  const acp_ga_t block = find_block(pair.first);
  if (block == ACP_GA_NULL) return 0;
  const acp_element_t value = pair_at(block).second;
  const std::size_t n = std::min(value.size, pair.second.size);
  if (n != 0) detail::check(kasane_copy(pointer(pair.second.ga), pointer(value.ga), n, nullptr));
  return n;
}

acp_pair_t Table::pair_at(acp_ga_t block) {
  if (block == ACP_GA_NULL) fail(EINVAL, "the iterator is at the end");
  EntryHead head;
  Far::read(&head, pointer(block), sizeof head);
  return {{block + sizeof head, head.key_bytes}, {block + value_offset(head.key_bytes), head.value_bytes}};
}

void Table::free_elements() {
  for (const auto& entry : *this) Job::here().memory.free(entry.value);
}

void Table::empty_it() {
  free_elements();
  clear();
}

acp_map_it_t Table::first() const { return wrap(begin()); }

acp_map_it_t Table::after(const acp_map_it_t& it) {
  if (it.elem == ACP_GA_NULL) return it;
  if (it.state[0] == 0) fail(EINVAL, "the iterator does not come from a walk that began at the begin");
  alignas(It) unsigned char bytes[sizeof(It)];
  std::memcpy(bytes, it.state, sizeof bytes);
  It inside = *std::launder(reinterpret_cast<It*>(bytes));
  ++inside;
  return wrap(inside);
}

}  // namespace kasane::acp
