// SPDX-License-Identifier: Apache-2.0
// acp_…_map: see table.h.
#include "acp/table.h"

using namespace kasane::acp;
using MapRecord = kasane::acp::Record<MapBody>;

extern "C" {

acp_map_t acp_create_map(int num_ranks, const int* ranks, int num_slots, int rank) {
  const acp_ga_t ga =
      attempt(__func__, ACP_GA_NULL, [&] { return create_table<MapBody>(num_ranks, ranks, rank); });
  return {ga, static_cast<std::uint64_t>(num_ranks), static_cast<std::uint64_t>(num_slots)};
}
void acp_destroy_map(acp_map_t map) {
  must(__func__, [&] { MapRecord::destroy(map.ga); });
}
acp_map_it_t acp_find_map(acp_map_t map, acp_element_t key) {
  acp_map_it_t it{};
  it.elem = attempt(__func__, ACP_GA_NULL, [&] { return MapRecord::of(map.ga).body.find_block(key); });
  return it;
}
int acp_insert_map(acp_map_t map, acp_pair_t pair) {
  return attempt(__func__, 0, [&] {
    if (MapRecord::of(map.ga).body.insert_pair(pair)) return 1;
    errno = EEXIST;
    return 0;
  });
}
void acp_remove_map(acp_map_t map, acp_element_t key) {
  must(__func__, [&] { MapRecord::of(map.ga).body.remove(key); });
}
size_t acp_retrieve_map(acp_map_t map, acp_pair_t pair) {
  return attempt(__func__, size_t{0}, [&] { return MapRecord::of(map.ga).body.retrieve(pair); });
}
acp_pair_t acp_dereference_map_it(acp_map_it_t it) {
  return attempt(__func__, acp_pair_t{}, [&] { return Table::pair_at(it.elem); });
}
acp_map_it_t acp_begin_map(acp_map_t map) {
  return must(__func__, [&] { return MapRecord::of(map.ga).body.first(); });
}
acp_map_it_t acp_end_map(acp_map_t map) {
  must(__func__, [&] { static_cast<void>(MapRecord::of(map.ga)); });
  return {};
}
acp_map_it_t acp_increment_map_it(acp_map_it_t it) {
  return attempt(__func__, acp_map_it_t{}, [&] { return Table::after(it); });
}
void acp_clear_map(acp_map_t map) {
  must(__func__, [&] { MapRecord::of(map.ga).body.empty_it(); });
}
void acp_swap_map(acp_map_t map1, acp_map_t map2) {
  must(__func__, [&] { MapRecord::swap(map1.ga, map2.ga); });
}
size_t acp_size_map(acp_map_t map) {
  return must(__func__, [&] { return MapRecord::of(map.ga).body.size(); });
}
int acp_empty_map(acp_map_t map) {
  return must(__func__, [&] { return MapRecord::of(map.ga).body.empty() ? 1 : 0; });
}

}  // extern "C"
