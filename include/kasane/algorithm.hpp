// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parallel algorithms with the names and the order of arguments of the C++ standard library.
///
///     kasane::run([&] {
///       auto x = kasane::make_array<double>(n, kasane::placement::block);
///       kasane::fill(x.get(), x.get() + n, 1.0);
///       kasane::inclusive_scan(x.get(), x.get() + n, x.get());
///       double sum = kasane::reduce(x.get(), x.get() + n);
///       kasane::sort(x.get(), x.get() + n, std::greater<>());
///     });
///
/// **Ranges** are given by random access iterators, or by the range itself (a vector, a span), with the order
/// of arguments of std::ranges: `count(range, value)`, `transform(range, out, f)`, `merge(range1, range2,
/// out)`. An iterator into a range that is a temporary is returned as std::ranges::dangling. All ranks reach
/// the elements: they lie in global memory or on threads' stacks. Output ranges do not overlap input ranges,
/// except that they may be equal where it says so.
///
/// **How**: a range is halved into pieces, each run in order by one thread; where elements are contiguous,
/// pieces meet at multiples of 4 KiB, so that no two ranks write one block. `grain` (last argument, default
/// `automatic`) bounds the elements of a piece: about eight pieces a worker, of at most 64 KiB or 2048
/// elements.
/// The contiguous elements that a piece
/// reads and writes are fetched together when it begins (`prefetch`); those of trivially copyable types that
/// it overwrites are not fetched.
///
/// **Where**: of large ranges of contiguous elements some parts a rank (of 256 KiB at least) begin at the
/// rank that owns the memory in their middle (as `parallel_for(near_data, …)`): of the output, if there is
/// one; of scans the input's in the first of their two sweeps. From then on idle workers may steal pieces as
/// ever. The caller may continue at another rank, as after any fork. Searches begin where they are called,
/// since they proceed in order.
///
/// **Functions** given are called by several threads at once, on copies or on the caller's object, and may
/// throw: the exception that comes first in serial order is thrown after all pieces have ended, and the
/// elements of output ranges are unspecified. Operators of reductions and scans are associative; they need
/// not be commutative.
///
/// **Consistency**: as of fork and join: all that the caller did before is visible to the functions, and all
/// that they did is visible to the caller afterwards.
///
/// **Thread safety**: on user-level threads (inside of run()); calls on ranges that do not overlap are
/// independent. Throws error EPERM elsewhere, out_of_memory where an algorithm says that it allocates.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <kasane/kasane.hpp>
#include <memory>
#include <numeric>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane {

namespace detail {

/// Where a range of n elements may be cut: at multiples of `unit` elements, counted from `phase` elements
/// before its first; and which parts of it begin near their memory: the first of `near` elements or less on
/// the way down the recursion; 0: none.
struct Cut {
  std::uint64_t grain;
  std::uint64_t unit = 1;
  std::uint64_t phase = 0;
  std::uint64_t near = 0;
  const std::byte* first = nullptr;  ///< where elements of `bytes` lie that pieces write, or read
  std::uint64_t bytes = 0;

  [[nodiscard]] std::uint64_t middle(std::uint64_t begin, std::uint64_t end) const noexcept {
    const std::uint64_t half = begin + (end - begin) / 2;
    const std::uint64_t down = (half + phase) / unit * unit;
    return down > begin + phase ? down - phase : half;
  }
  /// Called before [begin, end) is cut. True: the thread has just moved near its memory.
  bool enter(std::uint64_t begin, std::uint64_t end) noexcept {
    if (near == 0 || end - begin > near) return false;
    near = 0;
    go_near(first + (begin + (end - begin) / 2) * bytes);
    return true;
  }
  /// The same for a recursion that merges larger parts at every level.
  [[nodiscard]] bool large(std::uint64_t n) const noexcept { return near != 0 && 2 * n > near; }
};

/// the unit that different ranks should not write
inline constexpr std::uint64_t kBlockBytes = 4096;
inline constexpr std::uint64_t kPieceBytes = 64 * 1024;
/// large, so that the work of a part outweighs the move
inline constexpr std::uint64_t kNearBytes = 512 * 1024;

/// The cut of a range, of which `written` is the beginning of what its pieces write, or read.
template <std::random_access_iterator Iterator>
[[nodiscard]] Cut cut_for(Iterator written, std::uint64_t n, std::uint64_t grain) {
  constexpr std::uint64_t size = sizeof(std::iter_value_t<Iterator>);
  constexpr std::uint64_t most = kPieceBytes / size > 2048 ? kPieceBytes / size : 2048;
  const std::uint64_t even = n / (std::uint64_t{8} * ranks() * workers());
  Cut cut{grain != automatic ? grain : std::clamp<std::uint64_t>(even, 1, most)};
  if constexpr (std::contiguous_iterator<Iterator> && kBlockBytes % size == 0) {
    const auto address = reinterpret_cast<std::uintptr_t>(std::to_address(written));
    if (cut.grain >= kBlockBytes / size && address % size == 0)
      cut = {cut.grain, kBlockBytes / size, address % kBlockBytes / size};
  }
  if constexpr (std::contiguous_iterator<Iterator>) {
    const std::uint64_t part =
        std::max({(n - 1) / (kPartsOfARank * ranks()) + 1, kNearBytes / size, cut.grain});
    if (ranks() > 1 && n > part) {
      cut.near = part;
      cut.first = reinterpret_cast<const std::byte*>(std::to_address(written));
      cut.bytes = size;
    }
  }
  return cut;
}

template <class Iterator>
[[nodiscard]] std::uint64_t count_of(Iterator first, Iterator last) {
  return static_cast<std::uint64_t>(last - first);
}
template <class Iterator>
[[nodiscard]] Iterator advanced(Iterator first, std::uint64_t n) {
  return first + static_cast<std::iter_difference_t<Iterator>>(n);
}

/// Prefetches n elements from first for a piece. Where the piece also reads elements that overlap them, use
/// is not write_only.
template <class Iterator>
void expect(Iterator first, std::uint64_t n, view_access use) {
  if constexpr (std::contiguous_iterator<Iterator>) {
    // others read what they overwrite
    constexpr bool plain = std::is_trivially_copyable_v<std::iter_value_t<Iterator>>;
    if (n * sizeof(std::iter_value_t<Iterator>) >= kBlockBytes)
      prefetch(std::to_address(first), n, use == write_only && !plain ? read_write : use);
  }
}
/// The output of a piece whose input may be the same elements.
template <class Output, class... Iterator>
void expect_output(Output out, std::uint64_t n, Iterator... inputs) {
  const auto apart = [out](auto in) {
    if constexpr (std::contiguous_iterator<Output> && std::contiguous_iterator<decltype(in)>)
      return static_cast<const void*>(std::to_address(out)) != static_cast<const void*>(std::to_address(in));
    else
      return false;
  };
  expect(out, n, (apart(inputs) && ...) ? write_only : read_write);
}

/// Calls f(begin, end) for the pieces of [begin, end).
template <class Callable>
void each_piece(std::uint64_t begin, std::uint64_t end, Carried<Callable> f, Cut cut) {
  cut.enter(begin, end);
  if (end - begin <= cut.grain) {
    if (begin != end) (*f)(begin, end);
    return;
  }
  const std::uint64_t middle = cut.middle(begin, end);
  fork_join_near(
      cut.near != 0, [=] { each_piece<Callable>(begin, middle, f, cut); },
      [=] { each_piece<Callable>(middle, end, f, cut); });
}
template <class Callable>
void pieces(std::uint64_t n, Cut cut, Callable f) {
  each_piece<Callable>(0, n, Carried<Callable>(f), cut);
}

/// The combination of f(begin, end) over the pieces, in order.
template <class Type, class Callable, class Combine>
Type reduce_each(std::uint64_t begin, std::uint64_t end, Carried<Callable> f, Carried<Combine> combine,
                 Cut cut) {
  cut.enter(begin, end);
  if (end - begin <= cut.grain) return (*f)(begin, end);
  const std::uint64_t middle = cut.middle(begin, end);
  std::optional<Type> left, right;
  fork_join_near(
      cut.near != 0,
      [=, out = &left] {
        out->emplace(reduce_each<Type, Callable, Combine>(begin, middle, f, combine, cut));
      },
      [=, out = &right] {
        out->emplace(reduce_each<Type, Callable, Combine>(middle, end, f, combine, cut));
      });
  return std::invoke(*combine, std::move(*left), std::move(*right));
}

template <class Range>
concept algorithm_range = std::ranges::random_access_range<Range> && std::ranges::common_range<Range>;

/// What an algorithm over Range returns where that over its iterators returns Result.
template <class Range, class Result>
using result_over = std::conditional_t<std::same_as<Result, std::ranges::iterator_t<Range>> &&
                                           !std::ranges::borrowed_range<Range>,
                                       std::ranges::dangling, Result>;

/// Where the shorter of two ranges has its end, in the first.
template <algorithm_range Range1, algorithm_range Range2>
[[nodiscard]] auto shorter_end(Range1& range1, Range2& range2) {
  return advanced(std::ranges::begin(range1),
                  std::min<std::uint64_t>(std::ranges::size(range1), std::ranges::size(range2)));
}

/// A word in global memory that all ranks use through the direct view.
class SharedIndex {
 public:
  explicit SharedIndex(std::uint64_t value)
      : word_(static_cast<std::uint64_t*>(allocate(sizeof(std::uint64_t)))) {
    put(at(), value);
  }
  SharedIndex(const SharedIndex&) = delete;
  SharedIndex& operator=(const SharedIndex&) = delete;
  ~SharedIndex() { deallocate(word_); }
  [[nodiscard]] global_ptr<std::uint64_t> at() const noexcept { return global_ptr<std::uint64_t>(word_); }

  static void lower_to(global_ptr<std::uint64_t> at, std::uint64_t value) {
    for (std::uint64_t seen = get(at); value < seen;) {
      const std::uint64_t old = compare_swap(at, seen, value);
      if (old == seen) return;
      seen = old;
    }
  }

 private:
  std::uint64_t* word_;
};

}  // namespace detail

/// name(range, …) calls name(begin, end, …).
#define KASANE_OVER_A_RANGE(name)                                                                       \
  template <detail::algorithm_range Range, class... More>                                               \
    requires requires(Range& range, More&&... more) {                                                   \
      kasane::name(std::ranges::begin(range), std::ranges::end(range), std::forward<More>(more)...);    \
    }                                                                                                   \
  auto name(Range&& range, More&&... more) {                                                            \
    using Result = decltype(kasane::name(std::ranges::begin(range), std::ranges::end(range),            \
                                         std::forward<More>(more)...));                                 \
    return static_cast<detail::result_over<Range, Result>>(                                             \
        kasane::name(std::ranges::begin(range), std::ranges::end(range), std::forward<More>(more)...)); \
  }

// ---- each element by itself -------------------------------------------------------------------------------

/// Calls f(x) for each element x.
template <std::random_access_iterator Iterator, class Callable>
void for_each(Iterator first, Iterator last, Callable f, std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  detail::pieces(
      n, detail::cut_for(first, n, grain),
      [first, f = detail::Carried<Callable>(f)](std::uint64_t begin, std::uint64_t end) mutable {
        constexpr bool constant = std::is_const_v<std::remove_reference_t<std::iter_reference_t<Iterator>>>;
        detail::expect(detail::advanced(first, begin), end - begin,
                       constant ? view_access::read : read_write);
        for (Iterator i = detail::advanced(first, begin), e = detail::advanced(first, end); i != e; ++i)
          std::invoke(*f, *i);
      });
}
KASANE_OVER_A_RANGE(for_each)

/// *out = f(x) for each element; returns the end of the output, which may be the input.
template <std::random_access_iterator Iterator, std::random_access_iterator Output, class Callable>
  requires std::invocable<Callable&, std::iter_reference_t<Iterator>>
Output transform(Iterator first, Iterator last, Output out, Callable f, std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  detail::pieces(
      n, detail::cut_for(out, n, grain),
      [first, out, f = detail::Carried<Callable>(f)](std::uint64_t begin, std::uint64_t end) mutable {
        const Iterator from = detail::advanced(first, begin);
        const Output to = detail::advanced(out, begin);
        detail::expect(from, end - begin, view_access::read);
        detail::expect_output(to, end - begin, from);
        std::transform(from, detail::advanced(first, end), to, std::ref(*f));
      });
  return detail::advanced(out, n);
}
/// *out = f(x, y) for elements of two ranges, the second as long as the first.
template <std::random_access_iterator Iterator, std::random_access_iterator Other,
          std::random_access_iterator Output, class Callable>
  requires std::invocable<Callable&, std::iter_reference_t<Iterator>, std::iter_reference_t<Other>>
Output transform(Iterator first, Iterator last, Other second, Output out, Callable f,
                 std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  detail::pieces(
      n, detail::cut_for(out, n, grain),
      [first, second, out, f = detail::Carried<Callable>(f)](std::uint64_t begin, std::uint64_t end) mutable {
        const Iterator from = detail::advanced(first, begin);
        const Other with = detail::advanced(second, begin);
        const Output to = detail::advanced(out, begin);
        detail::expect(from, end - begin, view_access::read);
        detail::expect(with, end - begin, view_access::read);
        detail::expect_output(to, end - begin, from, with);
        std::transform(from, detail::advanced(first, end), with, to, std::ref(*f));
      });
  return detail::advanced(out, n);
}
KASANE_OVER_A_RANGE(transform)
/// The same, to the end of the shorter range.
template <detail::algorithm_range Range1, detail::algorithm_range Range2, std::random_access_iterator Output,
          class Callable>
  requires std::invocable<Callable&, std::ranges::range_reference_t<Range1>,
                          std::ranges::range_reference_t<Range2>>
Output transform(Range1&& range1, Range2&& range2, Output out, Callable f, std::size_t grain = automatic) {
  return kasane::transform(std::ranges::begin(range1), detail::shorter_end(range1, range2),
                           std::ranges::begin(range2), out, std::move(f), grain);
}

/// Copies the elements; returns the end of the output.
template <std::random_access_iterator Iterator, std::random_access_iterator Output>
  requires std::indirectly_copyable<Iterator, Output>
Output copy(Iterator first, Iterator last, Output out, std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  detail::pieces(n, detail::cut_for(out, n, grain), [=](std::uint64_t begin, std::uint64_t end) {
    const Iterator from = detail::advanced(first, begin);
    const Output to = detail::advanced(out, begin);
    detail::expect(from, end - begin, view_access::read);
    detail::expect_output(to, end - begin, from);
    std::copy(from, detail::advanced(first, end), to);
  });
  return detail::advanced(out, n);
}
KASANE_OVER_A_RANGE(copy)

/// Assigns value to each element.
template <std::random_access_iterator Iterator, class Type = std::iter_value_t<Iterator>>
void fill(Iterator first, Iterator last, const Type& value, std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  detail::pieces(n, detail::cut_for(first, n, grain), [first, value](std::uint64_t begin, std::uint64_t end) {
    detail::expect(detail::advanced(first, begin), end - begin, write_only);
    std::fill(detail::advanced(first, begin), detail::advanced(first, end), value);
  });
}
KASANE_OVER_A_RANGE(fill)

// ---- reductions -------------------------------------------------------------------------------------------

namespace detail {
/// reduce(init, value(i) for i in [0, n)), in order. value reads the elements from `inputs` on.
template <class Type, class Reduce, class Value, class... Iterator>
[[nodiscard]] Type fold(std::uint64_t n, Type init, Reduce reduce, Value value, Cut cut, Iterator... inputs) {
  if (n == 0) return init;
  auto part = [reduce = Carried<Reduce>(reduce), value, inputs...](std::uint64_t begin,
                                                                   std::uint64_t end) mutable {
    (expect(advanced(inputs, begin), end - begin, view_access::read), ...);
    Type sum(value(begin));
    for (std::uint64_t i = begin + 1; i != end; ++i)
      sum = std::invoke(*reduce, std::move(sum), Type(value(i)));
    return sum;
  };
  using Part = decltype(part);
  Type all = reduce_each<Type, Part, Reduce>(0, n, Carried<Part>(part), Carried<Reduce>(reduce), cut);
  return std::invoke(reduce, std::move(init), std::move(all));
}
}  // namespace detail

/// reduce(init, f(x) of each element x) in order. The value has the type of init.
template <std::random_access_iterator Iterator, class Type, class Reduce, class Callable>
  requires std::invocable<Callable&, std::iter_reference_t<Iterator>>
[[nodiscard]] Type transform_reduce(Iterator first, Iterator last, Type init, Reduce reduce, Callable f,
                                    std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  const auto value = [first, f = detail::Carried<Callable>(f)](std::uint64_t i) mutable -> decltype(auto) {
    return std::invoke(*f, *detail::advanced(first, i));
  };
  return detail::fold(n, std::move(init), std::move(reduce), value, detail::cut_for(first, n, grain), first);
}
/// reduce(init, f(x, y) of the elements of two ranges): by default their inner product.
template <std::random_access_iterator Iterator, std::random_access_iterator Other, class Type,
          class Reduce = std::plus<>, class Callable = std::multiplies<>>
  requires std::invocable<Callable&, std::iter_reference_t<Iterator>, std::iter_reference_t<Other>>
[[nodiscard]] Type transform_reduce(Iterator first, Iterator last, Other second, Type init,
                                    Reduce reduce = {}, Callable f = {}, std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  const auto value = [first, second,
                      f = detail::Carried<Callable>(f)](std::uint64_t i) mutable -> decltype(auto) {
    return std::invoke(*f, *detail::advanced(first, i), *detail::advanced(second, i));
  };
  return detail::fold(n, std::move(init), std::move(reduce), value, detail::cut_for(first, n, grain), first,
                      second);
}
KASANE_OVER_A_RANGE(transform_reduce)
/// The same, to the end of the shorter range.
template <detail::algorithm_range Range1, detail::algorithm_range Range2, class Type,
          class Reduce = std::plus<>, class Callable = std::multiplies<>>
  requires std::invocable<Callable&, std::ranges::range_reference_t<Range1>,
                          std::ranges::range_reference_t<Range2>>
[[nodiscard]] Type transform_reduce(Range1&& range1, Range2&& range2, Type init, Reduce reduce = {},
                                    Callable f = {}, std::size_t grain = automatic) {
  return kasane::transform_reduce(std::ranges::begin(range1), detail::shorter_end(range1, range2),
                                  std::ranges::begin(range2), std::move(init), std::move(reduce),
                                  std::move(f), grain);
}

/// reduce(init, the elements), in order; by default their sum from zero.
template <std::random_access_iterator Iterator, class Type, class Reduce = std::plus<>>
[[nodiscard]] Type reduce(Iterator first, Iterator last, Type init, Reduce reduce = {},
                          std::size_t grain = automatic) {
  return kasane::transform_reduce(first, last, std::move(init), std::move(reduce), std::identity(), grain);
}
template <std::random_access_iterator Iterator>
[[nodiscard]] std::iter_value_t<Iterator> reduce(Iterator first, Iterator last) {
  return kasane::reduce(first, last, std::iter_value_t<Iterator>{});
}
KASANE_OVER_A_RANGE(reduce)

/// How many elements satisfy the predicate.
template <std::random_access_iterator Iterator, class Predicate>
[[nodiscard]] std::iter_difference_t<Iterator> count_if(Iterator first, Iterator last, Predicate predicate,
                                                        std::size_t grain = automatic) {
  using Count = std::iter_difference_t<Iterator>;
  return kasane::transform_reduce(
      first, last, Count{0}, std::plus<>(),
      [p = detail::Carried<Predicate>(predicate)](auto&& x) mutable {
        return std::invoke(*p, x) ? Count{1} : Count{0};
      },
      grain);
}
KASANE_OVER_A_RANGE(count_if)
/// How many are equal to the value.
template <std::random_access_iterator Iterator, class Type>
[[nodiscard]] std::iter_difference_t<Iterator> count(Iterator first, Iterator last, const Type& value,
                                                     std::size_t grain = automatic) {
  return kasane::count_if(first, last, [value](const auto& x) { return x == value; }, grain);
}
KASANE_OVER_A_RANGE(count)

namespace detail {
/// The first element that is the best, where better(a, b): a before b.
template <class Iterator, class Better>
[[nodiscard]] Iterator best_element(Iterator first, Iterator last, Better better, std::size_t grain) {
  const std::uint64_t n = count_of(first, last);
  if (n == 0) return last;
  auto part = [first, better = Carried<Better>(better)](std::uint64_t begin, std::uint64_t end) mutable {
    expect(advanced(first, begin), end - begin, view_access::read);
    std::uint64_t best = begin;
    for (std::uint64_t i = begin + 1; i != end; ++i)
      if (std::invoke(*better, *advanced(first, i), *advanced(first, best))) best = i;
    return best;
  };
  auto combine = [first, better = Carried<Better>(better)](std::uint64_t a, std::uint64_t b) mutable {
    return std::invoke(*better, *advanced(first, b), *advanced(first, a)) ? b : a;
  };
  using Part = decltype(part);
  using Combine = decltype(combine);
  return advanced(first, reduce_each<std::uint64_t, Part, Combine>(
                             0, n, Carried<Part>(part), Carried<Combine>(combine), cut_for(first, n, grain)));
}
}  // namespace detail

/// The first smallest, the first largest element; last if there is none.
template <std::random_access_iterator Iterator, class Less = std::less<>>
[[nodiscard]] Iterator min_element(Iterator first, Iterator last, Less less = {},
                                   std::size_t grain = automatic) {
  return detail::best_element(first, last, std::move(less), grain);
}
KASANE_OVER_A_RANGE(min_element)
/// The first of the greatest; last: there is none.
template <std::random_access_iterator Iterator, class Less = std::less<>>
[[nodiscard]] Iterator max_element(Iterator first, Iterator last, Less less = {},
                                   std::size_t grain = automatic) {
  return detail::best_element(
      first, last,
      [less = detail::Carried<Less>(less)](const auto& a, const auto& b) mutable {
        return static_cast<bool>(std::invoke(*less, b, a));
      },
      grain);
}
KASANE_OVER_A_RANGE(max_element)

// ---- searches ---------------------------------------------------------------------------------------------

namespace detail {
/// A piece of a search: looks for a hit, unless an earlier one is known. *found: the index of the first that
/// is known, or the number of elements.
template <class Iterator, class Predicate>
class SearchPiece {
 public:
  SearchPiece(Iterator first, global_ptr<std::uint64_t> found, Predicate& predicate) noexcept
      : first_(first), found_(found), predicate_(predicate) {}
  void operator()(std::uint64_t begin, std::uint64_t end) {
    if (get(found_) <= begin) return;
    const Iterator stop = advanced(first_, end);
    const Iterator hit = std::find_if(advanced(first_, begin), stop, std::ref(*predicate_));
    if (hit != stop) SharedIndex::lower_to(found_, count_of(first_, hit));
  }

 private:
  Iterator first_;
  global_ptr<std::uint64_t> found_;
  Carried<Predicate> predicate_;
};
}  // namespace detail

/// The first element that satisfies the predicate, else last. Pieces behind a hit are not begun; those that
/// run continue to their first hit.
/// Allocates a word.
template <std::random_access_iterator Iterator, class Predicate>
[[nodiscard]] Iterator find_if(Iterator first, Iterator last, Predicate predicate,
                               std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first, last);
  detail::Cut cut = detail::cut_for(first, n, grain);
  cut.near = 0;  // in order, as far as possible
  if (n <= cut.grain) return std::find_if(first, last, std::ref(predicate));
  const detail::SharedIndex found(n);
  detail::pieces(n, cut, detail::SearchPiece<Iterator, Predicate>(first, found.at(), predicate));
  return detail::advanced(first, get(found.at()));
}
KASANE_OVER_A_RANGE(find_if)
/// The first that is equal to the value; last: none is.
template <std::random_access_iterator Iterator, class Type>
[[nodiscard]] Iterator find(Iterator first, Iterator last, const Type& value, std::size_t grain = automatic) {
  return kasane::find_if(first, last, [value](const auto& x) { return x == value; }, grain);
}
KASANE_OVER_A_RANGE(find)
/// Whether the predicate holds for at least one.
template <std::random_access_iterator Iterator, class Predicate>
[[nodiscard]] bool any_of(Iterator first, Iterator last, Predicate predicate, std::size_t grain = automatic) {
  return kasane::find_if(first, last, std::move(predicate), grain) != last;
}
KASANE_OVER_A_RANGE(any_of)
/// Whether the predicate holds for none.
template <std::random_access_iterator Iterator, class Predicate>
[[nodiscard]] bool none_of(Iterator first, Iterator last, Predicate predicate,
                           std::size_t grain = automatic) {
  return !kasane::any_of(first, last, std::move(predicate), grain);
}
KASANE_OVER_A_RANGE(none_of)
/// Whether the predicate holds for all.
template <std::random_access_iterator Iterator, class Predicate>
[[nodiscard]] bool all_of(Iterator first, Iterator last, Predicate predicate, std::size_t grain = automatic) {
  return kasane::none_of(
      first, last,
      [p = detail::Carried<Predicate>(predicate)](const auto& x) mutable { return !std::invoke(*p, x); },
      grain);
}
KASANE_OVER_A_RANGE(all_of)

// ---- scans ------------------------------------------------------------------------------------------------

namespace detail {

/// The cut of numbered pieces of `step` elements, the first shorter by `phase`: the parts that begin near the
/// elements' memory begin near theirs.
[[nodiscard]] inline Cut cut_of_pieces(const Cut& elements, std::uint64_t step,
                                       std::uint64_t phase) noexcept {
  Cut cut{1};
  if (elements.near == 0) return cut;
  cut.near = std::max<std::uint64_t>(elements.near / step, 1);
  cut.first = elements.first - phase * elements.bytes;
  cut.bytes = step * elements.bytes;
  return cut;
}

/// Two sweeps (Blelloch, Prefix Sums and Their Applications, 1990): every piece's sum; then each piece again,
/// starting from the sum of all before it.
/// sweep(begin, end, sum before, if any) writes a piece.
template <class Type, class Iterator, class Output, class Op, class Sweep>
Output scan(Iterator first, Iterator last, Output out, std::optional<Type> init, Op op, Sweep sweep,
            std::size_t grain) {
  const std::uint64_t n = count_of(first, last);
  if (n == 0) return out;
  const Cut cut = cut_for(out, n, grain);
  const std::uint64_t step = (cut.grain + cut.unit - 1) / cut.unit * cut.unit;
  // Equal pieces, and so numbered, the first shorter by the phase.
  const auto begin_of = [n, step, phase = cut.phase](std::uint64_t piece) {
    return piece == 0 ? 0 : std::min(n, piece * step - phase);
  };
  const std::uint64_t count = (n + cut.phase + step - 1) / step;
  std::vector<std::optional<Type>, allocator<std::optional<Type>>> sums(count);
  pieces(
      count - 1, cut_of_pieces(cut_for(first, n, grain), step, cut.phase),
      [first, begin_of, to = sums.data(), op = Carried<Op>(op)](std::uint64_t piece, std::uint64_t) mutable {
        Iterator i = advanced(first, begin_of(piece));
        const Iterator e = advanced(first, begin_of(piece + 1));
        expect(i, count_of(i, e), view_access::read);
        Type sum(*i);
        for (++i; i != e; ++i) sum = std::invoke(*op, std::move(sum), *i);
        to[piece + 1] = std::move(sum);
      });
  sums[0] = std::move(init);
  for (std::uint64_t p = 1; p < count; ++p)
    if (sums[p - 1]) sums[p] = std::invoke(op, *sums[p - 1], std::move(*sums[p]));
  pieces(count, cut_of_pieces(cut, step, cut.phase),
         [first, out, begin_of, from = sums.data(), sweep = Carried<Sweep>(sweep)](std::uint64_t piece,
                                                                                   std::uint64_t) mutable {
           const std::uint64_t begin = begin_of(piece), end = begin_of(piece + 1);
           expect(advanced(first, begin), end - begin, view_access::read);
           expect_output(advanced(out, begin), end - begin, advanced(first, begin));
           (*sweep)(begin, end, from[piece]);
         });
  return advanced(out, n);
}

template <class Type, class Iterator, class Output, class Op>
Output inclusive_scan_from(Iterator first, Iterator last, Output out, Op op, std::optional<Type> init,
                           std::size_t grain) {
  auto sweep = [first, out, op = Carried<Op>(op)](std::uint64_t begin, std::uint64_t end,
                                                  const std::optional<Type>& before) mutable {
    const Iterator i = advanced(first, begin), e = advanced(first, end);
    if (before)
      std::inclusive_scan(i, e, advanced(out, begin), std::ref(*op), *before);
    else
      std::inclusive_scan(i, e, advanced(out, begin), std::ref(*op));
  };
  return scan<Type>(first, last, out, std::move(init), op, sweep, grain);
}

}  // namespace detail

/// out[i] = op(init, the elements up to and with i), where the sums have the type of init; without init, or
/// with std::nullopt (to give a grain), op(the elements up to and with i). out may be first. Returns the end
/// of the output. Allocates a value for each piece.
template <std::random_access_iterator Iterator, std::random_access_iterator Output, class Op = std::plus<>>
Output inclusive_scan(Iterator first, Iterator last, Output out, Op op = {}, std::nullopt_t = std::nullopt,
                      std::size_t grain = automatic) {
  return detail::inclusive_scan_from<std::iter_value_t<Iterator>>(first, last, out, std::move(op),
                                                                  std::nullopt, grain);
}
template <std::random_access_iterator Iterator, std::random_access_iterator Output, class Op, class Type>
  requires(!std::same_as<Type, std::nullopt_t>)
Output inclusive_scan(Iterator first, Iterator last, Output out, Op op, Type init,
                      std::size_t grain = automatic) {
  return detail::inclusive_scan_from<Type>(first, last, out, std::move(op),
                                           std::optional<Type>(std::move(init)), grain);
}
KASANE_OVER_A_RANGE(inclusive_scan)
/// out[i] = op(init, the elements before i). Else as inclusive_scan.
template <std::random_access_iterator Iterator, std::random_access_iterator Output, class Type,
          class Op = std::plus<>>
Output exclusive_scan(Iterator first, Iterator last, Output out, Type init, Op op = {},
                      std::size_t grain = automatic) {
  auto sweep = [first, out, op = detail::Carried<Op>(op)](std::uint64_t begin, std::uint64_t end,
                                                          const std::optional<Type>& before) mutable {
    std::exclusive_scan(detail::advanced(first, begin), detail::advanced(first, end),
                        detail::advanced(out, begin), *before, std::ref(*op));
  };
  return detail::scan<Type>(first, last, out, std::optional<Type>(std::move(init)), op, sweep, grain);
}
KASANE_OVER_A_RANGE(exclusive_scan)

// ---- order ------------------------------------------------------------------------------------------------

namespace detail {

/// How a merge transfers elements: copied into an output range; or moved into raw memory; or moved back,
/// which leaves raw memory behind.
enum class Transfer : std::uint8_t { copy, to_raw, from_raw };

template <Transfer How, class Iterator, class Other, class Output, class Less>
void merge_here(Iterator a, Iterator a_end, Other b, Other b_end, Output out, Less& less) {
  const auto take = [&out](auto& from) {
    using Value = std::iter_value_t<Output>;
    if constexpr (How == Transfer::copy)
      *out = *from;
    else if constexpr (How == Transfer::to_raw)
      std::construct_at(std::to_address(out), std::move(*from));
    else {
      *out = std::move(*from);
      std::destroy_at(std::to_address(from));
    }
    static_assert(How == Transfer::copy || std::is_nothrow_move_constructible_v<Value>);
    ++out, ++from;
  };
  while (a != a_end && b != b_end) {
    if (std::invoke(less, *b, *a))
      take(b);
    else
      take(a);
  }
  while (a != a_end) take(a);
  while (b != b_end) take(b);
}

/// Stable: of equal elements those of a come first. The longer run is cut in the middle, the other where that
/// element belongs.
template <Transfer How, class Iterator, class Other, class Output, class Less>
void merge_runs(Iterator a, Iterator a_end, Other b, Other b_end, Output out, Carried<Less> less, Cut cut) {
  const std::uint64_t na = count_of(a, a_end), nb = count_of(b, b_end);
  if (na + nb <= cut.grain || na + nb < 4) {
    expect(a, na, view_access::read);
    expect(b, nb, view_access::read);
    expect(out, na + nb, write_only);
    merge_here<How>(a, a_end, b, b_end, out, *less);
    return;
  }
  if constexpr (std::contiguous_iterator<Output>) {
    if (cut.large(na + nb)) go_near(std::to_address(advanced(out, (na + nb) / 2)));
  }
  Iterator a_cut = advanced(a, na / 2);
  Other b_cut = advanced(b, nb / 2);
  if (na >= nb)
    b_cut = std::lower_bound(b, b_end, *a_cut, std::ref(*less));
  else
    a_cut = std::upper_bound(a, a_end, *b_cut, std::ref(*less));
  const Output out_cut = advanced(out, count_of(a, a_cut) + count_of(b, b_cut));
  fork_join_near(
      cut.large(na + nb),
      [=] { merge_runs<How, Iterator, Other, Output, Less>(a, a_cut, b, b_cut, out, less, cut); },
      [=] {
        merge_runs<How, Iterator, Other, Output, Less>(a_cut, a_end, b_cut, b_end, out_cut, less, cut);
      });
}

/// Sorts a[0, n); tmp[0, n) is raw memory before and afterwards. Sorts quarters and merges them into tmp and
/// back, as Cilk's cilksort.
template <bool Stable, class Iterator, class Less>
void sort_runs(Iterator a, std::iter_value_t<Iterator>* tmp, std::uint64_t n, Carried<Less> less, Cut cut) {
  if (n <= cut.grain || n < 8) {
    expect(a, n, read_write);
    if constexpr (Stable)
      std::stable_sort(a, advanced(a, n), std::ref(*less));
    else
      std::sort(a, advanced(a, n), std::ref(*less));
    return;
  }
  if constexpr (std::contiguous_iterator<Iterator>) {
    if (cut.large(n)) go_near(std::to_address(advanced(a, n / 2)));
  }
  const std::uint64_t half = cut.middle(0, n), q1 = cut.middle(0, half), q3 = cut.middle(half, n);
  const auto sorted = [=](std::uint64_t begin, std::uint64_t end) {
    return [=] {
      Cut part = cut;
      part.phase = (cut.phase + begin) % cut.unit;
      sort_runs<Stable, Iterator, Less>(advanced(a, begin), tmp + begin, end - begin, less, part);
    };
  };
  const auto merged = [=](std::uint64_t begin, std::uint64_t middle, std::uint64_t end) {
    return [=] {
      merge_runs<Transfer::to_raw, Iterator, Iterator, std::iter_value_t<Iterator>*, Less>(
          advanced(a, begin), advanced(a, middle), advanced(a, middle), advanced(a, end), tmp + begin, less,
          cut);
    };
  };
  const bool moves = cut.large(half);
  fork_join_near(
      moves, [=] { fork_join_near(moves, sorted(0, q1), sorted(q1, half)); },
      [=] { fork_join_near(moves, sorted(half, q3), sorted(q3, n)); });
  fork_join_near(moves, merged(0, q1, half), merged(half, q3, n));
  merge_runs<Transfer::from_raw, std::iter_value_t<Iterator>*, std::iter_value_t<Iterator>*, Iterator, Less>(
      tmp, tmp + half, tmp + half, tmp + n, a, less, cut);
}

template <bool Stable, class Iterator, class Less>
void sort(Iterator first, Iterator last, Less less, std::size_t grain) {
  using Type = std::iter_value_t<Iterator>;
  static_assert(std::is_nothrow_move_constructible_v<Type> && std::is_nothrow_move_assignable_v<Type> &&
                    std::is_nothrow_destructible_v<Type>,
                "a parallel sort moves elements to and fro, which must not throw");
  const std::uint64_t n = count_of(first, last);
  const Cut cut =
      cut_for(first, n,
              grain != automatic
                  ? grain
                  : std::clamp<std::uint64_t>(n / (std::uint64_t{8} * ranks() * workers()), 2048, 32768));
  if (n <= cut.grain) {
    sort_runs<Stable, Iterator, Less>(first, nullptr, n, Carried<Less>(less), cut);
    return;
  }
  const std::unique_ptr<void, array_deleter> tmp(
      allocate(n * sizeof(Type), std::max<std::size_t>(alignof(Type), 64), placement::block));
  sort_runs<Stable, Iterator, Less>(first, static_cast<Type*>(tmp.get()), n, Carried<Less>(less), cut);
}

}  // namespace detail

/// Merges two sorted ranges into one at `out`, which overlaps neither; of equal elements those of the first
/// come first. Returns the end of the output.
template <std::random_access_iterator Iterator, std::random_access_iterator Other,
          std::random_access_iterator Output, class Less = std::less<>>
  requires std::mergeable<Iterator, Other, Output, Less>
Output merge(Iterator first1, Iterator last1, Other first2, Other last2, Output out, Less less = {},
             std::size_t grain = automatic) {
  const std::uint64_t n = detail::count_of(first1, last1) + detail::count_of(first2, last2);
  detail::merge_runs<detail::Transfer::copy, Iterator, Other, Output, Less>(
      first1, last1, first2, last2, out, detail::Carried<Less>(less), detail::cut_for(out, n, grain));
  return detail::advanced(out, n);
}
template <detail::algorithm_range Range1, detail::algorithm_range Range2, std::random_access_iterator Output,
          class Less = std::less<>>
  requires std::mergeable<std::ranges::iterator_t<Range1>, std::ranges::iterator_t<Range2>, Output, Less>
Output merge(Range1&& range1, Range2&& range2, Output out, Less less = {}, std::size_t grain = automatic) {
  return kasane::merge(std::ranges::begin(range1), std::ranges::end(range1), std::ranges::begin(range2),
                       std::ranges::end(range2), out, std::move(less), grain);
}

/// Sorts the elements, whose moves do not throw. Allocates as much again. If less throws, elements may be
/// lost: those of trivially copyable types get unspecified values; others must not be compared by a function
/// that throws.
template <std::random_access_iterator Iterator, class Less = std::less<>>
void sort(Iterator first, Iterator last, Less less = {}, std::size_t grain = automatic) {
  detail::sort<false>(first, last, std::move(less), grain);
}
KASANE_OVER_A_RANGE(sort)
/// The same, and equal elements keep their order.
template <std::random_access_iterator Iterator, class Less = std::less<>>
void stable_sort(Iterator first, Iterator last, Less less = {}, std::size_t grain = automatic) {
  detail::sort<true>(first, last, std::move(less), grain);
}
KASANE_OVER_A_RANGE(stable_sort)

#undef KASANE_OVER_A_RANGE

}  // namespace kasane
