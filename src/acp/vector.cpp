// SPDX-License-Identifier: Apache-2.0
// acp_…_vector: a kasane::vector of the addresses of its elements.
#include <kasane/containers/vector.hpp>

#include "acp/sequence.h"

namespace kasane::acp {
namespace {

struct VectorBody : kasane::vector<Word>::handle {
  using Handle = kasane::vector<Word>::handle;
  using Handle::destroy;
  static constexpr Word kMark = 0x6163'7076'6563'746Fu;
  static constexpr const char* kName = "vector";

  void make(std::uint32_t rank) { Handle::make({rank}); }
  [[nodiscard]] std::uint32_t rank() const { return rank_of_part(0); }
  void get(std::size_t i, Word& ga) const { ga = Handle::get(i); }
  void replace(std::span<const Word> elements) { assign(elements); }
  void free_elements();
};
using VectorCalls = Sequence<VectorBody>;
using VectorRecord = Record<VectorBody>;

void VectorBody::free_elements() { Elements::free(VectorCalls::all(*this)); }

}  // namespace
}  // namespace kasane::acp

using namespace kasane::acp;

extern "C" {

acp_vector_t acp_create_vector(size_t nelem, size_t elsize, int rank) {
  return {
      attempt(__func__, ACP_GA_NULL, [&] { return VectorCalls::create(nelem, elsize, rank_named(rank)); })};
}
void acp_destroy_vector(acp_vector_t vector) {
  must(__func__, [&] { VectorRecord::destroy(vector.ga); });
}
acp_ga_t acp_dereference_vector(acp_vector_t vector, acp_vector_it_t it) {
  return attempt(__func__, ACP_GA_NULL, [&] { return VectorCalls::dereference(vector.ga, it); });
}
acp_vector_it_t acp_begin_vector(acp_vector_t vector) {
  must(__func__, [&] { static_cast<void>(VectorRecord::of(vector.ga)); });
  return 0;
}
acp_vector_it_t acp_end_vector(acp_vector_t vector) {
  return static_cast<acp_vector_it_t>(acp_size_vector(vector));
}
acp_vector_it_t acp_increment_vector_it(acp_vector_it_t it) { return it + 1; }
acp_vector_it_t acp_decrement_vector_it(acp_vector_it_t it) { return it - 1; }
void acp_fill_vector(acp_vector_t vector, size_t nelem, acp_ga_t ga) {
  must(__func__, [&] { VectorCalls::fill(vector.ga, nelem, ga); });
}
void acp_assign_vector(acp_vector_t vector1, acp_vector_t vector2, acp_vector_it_t it1, acp_vector_it_t it2) {
  must(__func__, [&] { VectorCalls::assign(vector1.ga, vector2.ga, it1, it2); });
}
void acp_push_back_vector(acp_vector_t vector, acp_ga_t ga) {
  must(__func__, [&] { VectorCalls::push_back(vector.ga, ga); });
}
void acp_pop_back_vector(acp_vector_t vector) {
  must(__func__, [&] {
    VectorRecord r = VectorRecord::of(vector.ga);
    if (!r.body.empty()) Job::here().memory.free(r.body.pop_back());
  });
}
acp_vector_it_t acp_insert_vector(acp_vector_t vector, acp_vector_it_t it, acp_ga_t ga) {
  return attempt(__func__, acp_vector_it_t{-1}, [&] { return VectorCalls::insert(vector.ga, it, ga); });
}
acp_vector_it_t acp_erase_vector(acp_vector_t vector, acp_vector_it_t it) {
  return attempt(__func__, acp_vector_it_t{-1}, [&] { return VectorCalls::erase(vector.ga, it); });
}
void acp_swap_vector(acp_vector_t vector1, acp_vector_t vector2) {
  must(__func__, [&] { VectorRecord::swap(vector1.ga, vector2.ga); });
}
void acp_clear_vector(acp_vector_t vector) {
  must(__func__, [&] { VectorCalls::clear(vector.ga); });
}
acp_vector_t acp_duplicate_vector(acp_vector_t vector, int rank) {
  return {
      attempt(__func__, ACP_GA_NULL, [&] { return VectorCalls::duplicate(vector.ga, rank_named(rank)); })};
}
size_t acp_size_vector(acp_vector_t vector) {
  return must(__func__, [&] { return VectorRecord::of(vector.ga).body.size(); });
}
int acp_empty_vector(acp_vector_t vector) { return acp_size_vector(vector) == 0 ? 1 : 0; }

}  // extern "C"
