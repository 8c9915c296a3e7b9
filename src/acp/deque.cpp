// SPDX-License-Identifier: Apache-2.0
// acp_…_deque: a kasane::deque of the addresses of its elements.
#include "acp/sequence.h"

namespace kasane::acp {
namespace {

struct DequeBody : kasane::deque<Word>::handle {
  using Handle = kasane::deque<Word>::handle;
  using Handle::destroy, Handle::make, Handle::push_back;
  static constexpr Word kMark = 0x6163'7064'6571'7565u;
  static constexpr const char* kName = "deque";

  void get(std::size_t i, Word& ga) const {
    if (read(i, std::span(&ga, 1)) == 0) fail(EINVAL, "no such element");
  }
  void replace(std::span<const Word> elements) {
    const std::size_t old = size();
    push_back(elements);
    drop_front(old);
  }
  void insert(std::size_t i, Word ga) {
    std::vector<Word> tail{ga};
    tail.resize(size() - i + 1);
    static_cast<void>(try_pop_back(std::span(tail).subspan(1)));
    push_back(std::span<const Word>(tail));
  }
  void erase(std::size_t i) {
    std::vector<Word> tail(size() - i);
    static_cast<void>(try_pop_back(std::span(tail)));
    push_back(std::span<const Word>(tail).subspan(1));
  }
  void free_elements();

 private:
  void drop_front(std::size_t n) {
    Word block[512];
    while (n != 0) n -= try_pop_front(std::span(block, std::min<std::size_t>(n, 512)));
  }
};
using DequeCalls = Sequence<DequeBody>;
using DequeRecord = Record<DequeBody>;

void DequeBody::free_elements() { Elements::free(DequeCalls::all(*this)); }

}  // namespace
}  // namespace kasane::acp

using namespace kasane::acp;

extern "C" {

acp_deque_t acp_create_deque(size_t nelem, size_t elsize, int rank) {
  return {
      attempt(__func__, ACP_GA_NULL, [&] { return DequeCalls::create(nelem, elsize, rank_named(rank)); })};
}
void acp_destroy_deque(acp_deque_t deque) {
  must(__func__, [&] { DequeRecord::destroy(deque.ga); });
}
acp_ga_t acp_dereference_deque(acp_deque_t deque, acp_deque_it_t it) {
  return attempt(__func__, ACP_GA_NULL, [&] { return DequeCalls::dereference(deque.ga, it); });
}
acp_deque_it_t acp_begin_deque(acp_deque_t deque) {
  must(__func__, [&] { static_cast<void>(DequeRecord::of(deque.ga)); });
  return 0;
}
acp_deque_it_t acp_end_deque(acp_deque_t deque) { return static_cast<acp_deque_it_t>(acp_size_deque(deque)); }
acp_deque_it_t acp_increment_deque_it(acp_deque_it_t it) { return it + 1; }
acp_deque_it_t acp_decrement_deque_it(acp_deque_it_t it) { return it - 1; }
void acp_fill_deque(acp_deque_t deque, size_t nelem, acp_ga_t ga) {
  must(__func__, [&] { DequeCalls::fill(deque.ga, nelem, ga); });
}
void acp_assign_deque(acp_deque_t deque1, acp_deque_t deque2, acp_deque_it_t it1, acp_deque_it_t it2) {
  must(__func__, [&] { DequeCalls::assign(deque1.ga, deque2.ga, it1, it2); });
}
void acp_push_front_deque(acp_deque_t deque, acp_ga_t ga) {
  must(__func__, [&] {
    const DequeRecord r = DequeRecord::of(deque.ga);
    Element e = Element::copy(ga, r.element_bytes, r.body.rank());
    r.body.push_front(e.ga());
    e.keep();
  });
}
void acp_push_back_deque(acp_deque_t deque, acp_ga_t ga) {
  must(__func__, [&] { DequeCalls::push_back(deque.ga, ga); });
}
void acp_pop_front_deque(acp_deque_t deque) {
  must(__func__, [&] { drop(DequeRecord::of(deque.ga).body.try_pop_front()); });
}
void acp_pop_back_deque(acp_deque_t deque) {
  must(__func__, [&] { drop(DequeRecord::of(deque.ga).body.try_pop_back()); });
}
acp_deque_it_t acp_insert_deque(acp_deque_t deque, acp_deque_it_t it, acp_ga_t ga) {
  return attempt(__func__, acp_deque_it_t{-1}, [&] { return DequeCalls::insert(deque.ga, it, ga); });
}
acp_deque_it_t acp_erase_deque(acp_deque_t deque, acp_deque_it_t it) {
  return attempt(__func__, acp_deque_it_t{-1}, [&] { return DequeCalls::erase(deque.ga, it); });
}
void acp_swap_deque(acp_deque_t deque1, acp_deque_t deque2) {
  must(__func__, [&] { DequeRecord::swap(deque1.ga, deque2.ga); });
}
void acp_clear_deque(acp_deque_t deque) {
  must(__func__, [&] { DequeCalls::clear(deque.ga); });
}
acp_deque_t acp_duplicate_deque(acp_deque_t deque, int rank) {
  return {attempt(__func__, ACP_GA_NULL, [&] { return DequeCalls::duplicate(deque.ga, rank_named(rank)); })};
}
size_t acp_size_deque(acp_deque_t deque) {
  return must(__func__, [&] { return DequeRecord::of(deque.ga).body.size(); });
}
int acp_empty_deque(acp_deque_t deque) { return acp_size_deque(deque) == 0 ? 1 : 0; }

}  // extern "C"
