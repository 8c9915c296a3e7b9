// SPDX-License-Identifier: Apache-2.0
// acp_…_set: entries without values; see table.h.
#include "acp/table.h"

using namespace kasane::acp;
using SetRecord = kasane::acp::Record<SetBody>;

extern "C" {

acp_set_t acp_create_set(int num_ranks, const int* ranks, int num_slots, int rank) {
  const acp_ga_t ga =
      attempt(__func__, ACP_GA_NULL, [&] { return create_table<SetBody>(num_ranks, ranks, rank); });
  return {ga, static_cast<std::uint64_t>(num_ranks), static_cast<std::uint64_t>(num_slots)};
}
void acp_destroy_set(acp_set_t set) {
  must(__func__, [&] { SetRecord::destroy(set.ga); });
}
acp_set_it_t acp_find_set(acp_set_t set, acp_element_t key) {
  acp_set_it_t it{};
  it.elem = attempt(__func__, ACP_GA_NULL, [&] { return SetRecord::of(set.ga).body.find_block(key); });
  return it;
}
int acp_insert_set(acp_set_t set, acp_element_t key) {
  return attempt(__func__, 0, [&] {
    if (SetRecord::of(set.ga).body.insert_pair({key, {}})) return 1;
    errno = EEXIST;
    return 0;
  });
}
void acp_remove_set(acp_set_t set, acp_element_t key) {
  must(__func__, [&] { SetRecord::of(set.ga).body.remove(key); });
}
acp_element_t acp_dereference_set_it(acp_set_it_t it) {
  return attempt(__func__, acp_element_t{}, [&] { return Table::pair_at(it.elem).first; });
}
acp_set_it_t acp_begin_set(acp_set_t set) {
  return must(__func__, [&] { return SetRecord::of(set.ga).body.first(); });
}
acp_set_it_t acp_end_set(acp_set_t set) {
  must(__func__, [&] { static_cast<void>(SetRecord::of(set.ga)); });
  return {};
}
acp_set_it_t acp_increment_set_it(acp_set_it_t it) {
  return attempt(__func__, acp_set_it_t{}, [&] { return Table::after(it); });
}
void acp_clear_set(acp_set_t set) {
  must(__func__, [&] { SetRecord::of(set.ga).body.empty_it(); });
}
void acp_swap_set(acp_set_t set1, acp_set_t set2) {
  must(__func__, [&] { SetRecord::swap(set1.ga, set2.ga); });
}
size_t acp_size_set(acp_set_t set) {
  return must(__func__, [&] { return SetRecord::of(set.ga).body.size(); });
}
int acp_empty_set(acp_set_t set) {
  return must(__func__, [&] { return SetRecord::of(set.ga).body.empty() ? 1 : 0; });
}

}  // extern "C"
