// SPDX-License-Identifier: Apache-2.0
// acp_…_list: a kasane::list of the addresses of its elements, each at its element's rank.
#include <kasane/containers/list.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "acp/element.h"

namespace kasane::acp {
namespace {

struct ListBody : kasane::list<Word>::handle {
  using Handle = kasane::list<Word>::handle;
  using Handle::destroy, Handle::make;
  static constexpr Word kMark = 0x6163'706C'6973'7421u;
  static constexpr const char* kName = "list";

  void free_elements() {
    while (const std::optional<Word> ga = pop_back()) Job::here().memory.free(*ga);
  }
};
using ListRecord = Record<ListBody>;
using It = ListBody::Handle::iterator;

static_assert(sizeof(It) == sizeof(acp_list_it_t::state) && std::is_trivially_copyable_v<It>);

/// Throws error EINVAL: it is what a call returned that failed.
[[nodiscard]] It unwrap(const acp_list_it_t& it) {
  if (it.state[0] == 0) fail(EINVAL, "the iterator is of no list");
  It inside;
  std::memcpy(static_cast<void*>(&inside), it.state, sizeof inside);
  return inside;
}
[[nodiscard]] acp_list_it_t wrap(const It& inside, acp_ga_t elem) noexcept {
  acp_list_it_t it{elem, {}};
  std::memcpy(it.state, static_cast<const void*>(&inside), sizeof inside);
  return it;
}

[[nodiscard]] bool at_end(const It& it) noexcept { return it == It(); }

/// find() finds an iterator. Where its element is erased before the address is known, find() is called again.
template <class F>
[[nodiscard]] acp_list_it_t found(const F& find) {
  for (;;) {
    const It it = find();
    if (at_end(it)) return wrap(it, ACP_GA_NULL);
    try {
      return wrap(it, *it);
    } catch (const error& e) {
      if (e.code() != ESTALE) throw;
    }
  }
}

/// The end of a list that is empty, or the first element, has none before.
[[nodiscard]] It before(const It& it) {
  It other = it;
  try {
    return --other;
  } catch (const error& e) {
    if (e.code() != EINVAL) throw;
    return it;
  }
}

/// Blocks for copies of the elements from `it` to the one before `end`, in order.
void copy_range(const It& begin, const It& end, std::size_t bytes, std::uint32_t rank, Elements& copies) {
  for (It it = begin; it != end; ++it) copies.add(Element::copy(*it, bytes, rank));
}

void replace(ListBody& list, Elements& elements, std::uint32_t rank) {
  std::size_t old = list.size();
  if (!elements.span().empty()) list.append(elements.span(), rank);
  elements.keep();
  for (; old != 0; --old) drop(list.pop_front());
}

void fill(acp_ga_t list, std::size_t n, acp_ga_t ga, std::uint32_t rank) {
  ListRecord r = ListRecord::of(list);
  Elements copies;
  for (std::size_t i = 0; i < n; ++i) copies.add(Element::copy(ga, r.element_bytes, rank));
  replace(r.body, copies, rank);
}

void assign(acp_ga_t to, acp_ga_t from, const It& begin, const It& end, std::uint32_t rank) {
  ListRecord r = ListRecord::of(to);
  r.check_like(ListRecord::of(from));
  Elements copies;
  copy_range(begin, end, r.element_bytes, rank, copies);
  replace(r.body, copies, rank);
}

/// Sorts copies that lie here, then the list as they are.
void sort(acp_ga_t ga, bool (*compare)(acp_ga_t, acp_ga_t)) {
  ListRecord r = ListRecord::of(ga);
  if (compare == nullptr) fail(EINVAL, "there is no function that compares");
  std::vector<Word> elements;
  Elements copies;
  for (It it = r.body.begin(); it != r.body.end(); ++it) {
    elements.push_back(*it);
    copies.add(Element::copy(elements.back(), r.element_bytes, kasane::rank()));
  }
  std::vector<std::size_t> order(elements.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return compare(copies.span()[a], copies.span()[b]); });
  std::unordered_map<Word, std::size_t> place;
  for (std::size_t i = 0; i < order.size(); ++i) place[elements[order[i]]] = i;
  r.body.sort([&](Word a, Word b) { return place.at(a) < place.at(b); });
}

/// f(list, block) puts a copy of the element into the list. Returns what it does.
template <class F>
auto add(acp_ga_t list, acp_ga_t ga, int rank, const F& f) {
  const ListRecord r = ListRecord::of(list);
  const std::uint32_t at = rank_named(rank);
  Element e = Element::copy(ga, r.element_bytes, at);
  const It it = f(r.body, e.ga(), at);
  return wrap(it, e.keep());
}

acp_list_it_t erase(acp_ga_t list, const It& it) {
  const ListRecord r = ListRecord::of(list);
  const Word ga = *it;
  const It next = r.body.erase(it);
  Job::here().memory.free(ga);
  try {
    return wrap(next, at_end(next) ? ACP_GA_NULL : *next);
  } catch (const error& e) {  // another rank has erased that one meanwhile
    errno = e.code();
    return wrap(r.body.end(), ACP_GA_NULL);
  }
}

}  // namespace
}  // namespace kasane::acp

using namespace kasane::acp;

extern "C" {

acp_list_t acp_create_list(size_t elsize, int rank) {
  return {attempt(__func__, ACP_GA_NULL, [&] {
    const std::uint32_t at = rank_named(rank);
    return ListRecord::create(elsize, at, [at](ListBody& list) { list.make(at); });
  })};
}
void acp_destroy_list(acp_list_t list) {
  must(__func__, [&] { ListRecord::destroy(list.ga); });
}
acp_ga_t acp_dereference_list(acp_list_t list, acp_list_it_t it) {
  return attempt(__func__, ACP_GA_NULL, [&] {
    static_cast<void>(ListRecord::of(list.ga));
    return acp_ga_t{*unwrap(it)};
  });
}
acp_list_it_t acp_begin_list(acp_list_t list) {
  return must(__func__, [&] {
    const ListRecord r = ListRecord::of(list.ga);
    return found([&] { return r.body.begin(); });
  });
}
acp_list_it_t acp_end_list(acp_list_t list) {
  return must(__func__, [&] { return wrap(ListRecord::of(list.ga).body.end(), ACP_GA_NULL); });
}
acp_list_it_t acp_increment_list_it(acp_list_it_t it) {
  return attempt(__func__, acp_list_it_t{}, [&] {
    const It from = unwrap(it);
    if (at_end(from)) return it;
    return found([&] {
      It next = from;
      return ++next;
    });
  });
}
acp_list_it_t acp_decrement_list_it(acp_list_it_t it) {
  return attempt(__func__, acp_list_it_t{}, [&] {
    const It from = unwrap(it);
    return found([&] { return before(from); });
  });
}
void acp_fill_list(acp_list_t list, size_t nelem, acp_ga_t ga, int rank) {
  must(__func__, [&] { fill(list.ga, nelem, ga, rank_named(rank)); });
}
void acp_assign_list(acp_list_t list1, acp_list_t list2, acp_list_it_t it1, acp_list_it_t it2, int rank) {
  must(__func__, [&] { assign(list1.ga, list2.ga, unwrap(it1), unwrap(it2), rank_named(rank)); });
}
void acp_push_front_list(acp_list_t list, acp_ga_t ga, int rank) {
  must(__func__, [&] {
    add(list.ga, ga, rank,
        [](const ListBody& l, Word block, std::uint32_t at) { return l.push_front(block, at); });
  });
}
void acp_push_back_list(acp_list_t list, acp_ga_t ga, int rank) {
  must(__func__, [&] {
    add(list.ga, ga, rank,
        [](const ListBody& l, Word block, std::uint32_t at) { return l.push_back(block, at); });
  });
}
void acp_pop_front_list(acp_list_t list) {
  must(__func__, [&] { drop(ListRecord::of(list.ga).body.pop_front()); });
}
void acp_pop_back_list(acp_list_t list) {
  must(__func__, [&] { drop(ListRecord::of(list.ga).body.pop_back()); });
}
acp_list_it_t acp_insert_list(acp_list_t list, acp_list_it_t it, acp_ga_t ga, int rank) {
  return attempt(__func__, acp_list_it_t{}, [&] {
    return add(list.ga, ga, rank, [&](const ListBody& l, Word block, std::uint32_t at) {
      return l.insert(unwrap(it), block, at);
    });
  });
}
acp_list_it_t acp_erase_list(acp_list_t list, acp_list_it_t it) {
  return attempt(__func__, acp_list_it_t{}, [&] { return erase(list.ga, unwrap(it)); });
}
void acp_swap_list(acp_list_t list1, acp_list_t list2) {
  must(__func__, [&] { ListRecord::swap(list1.ga, list2.ga); });
}
void acp_clear_list(acp_list_t list) {
  must(__func__, [&] { ListRecord::of(list.ga).body.free_elements(); });
}
void acp_sort_list(acp_list_t list, bool (*compare)(const acp_ga_t ga1, const acp_ga_t ga2)) {
  must(__func__, [&] { sort(list.ga, compare); });
}
size_t acp_size_list(acp_list_t list) {
  return must(__func__, [&] { return ListRecord::of(list.ga).body.size(); });
}
int acp_empty_list(acp_list_t list) { return acp_size_list(list) == 0 ? 1 : 0; }

}  // extern "C"
