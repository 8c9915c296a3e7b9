// SPDX-License-Identifier: Apache-2.0
// The public interface of the direct view (include/kasane/kasane.h). It checks shapes, forwards to Direct and
// turns its results into codes and texts.
// Thread safety: as the header says.
#include <kasane/kasane.h>
#include <cerrno>
#include <vector>

#include "runtime/api/api_error.h"
#include "runtime/api/direct.h"
#include "runtime/process/output.h"
#include "runtime/rank/runtime.h"
#include "ult/fairness.h"
#include "ult/runtime_section.h"

namespace {

using kasane::comm::AtomicOp, kasane::comm::Cursor, kasane::comm::Element, kasane::comm::Strides,
    kasane::comm::Width;
using kasane::runtime::answer, kasane::runtime::api_fail, kasane::runtime::Direct,
    kasane::runtime::keep_output_in_order, kasane::runtime::Runtime;

static_assert(static_cast<int>(Element::int32) == KASANE_INT32 &&
              static_cast<int>(Element::int64) == KASANE_INT64);
static_assert(static_cast<int>(Element::float32) == KASANE_FLOAT &&
              static_cast<int>(Element::float64) == KASANE_DOUBLE);
static_assert(static_cast<int>(Element::complex64) == KASANE_COMPLEX_FLOAT &&
              static_cast<int>(Element::complex128) == KASANE_COMPLEX_DOUBLE);
static_assert(static_cast<int>(AtomicOp::fetch_add) == KASANE_FETCH_ADD &&
              static_cast<int>(AtomicOp::fetch_and) == KASANE_FETCH_AND);
static_assert(static_cast<int>(AtomicOp::fetch_or) == KASANE_FETCH_OR &&
              static_cast<int>(AtomicOp::fetch_xor) == KASANE_FETCH_XOR);
static_assert(static_cast<int>(AtomicOp::swap) == KASANE_SWAP &&
              static_cast<int>(AtomicOp::compare_swap) == KASANE_COMPARE_SWAP);

/// Of every call here: each may wait.
Direct* direct_for(const char* call) noexcept {
  kasane::ult::let_others_run(kasane::runtime::holds_mutex_of_libc);
  Runtime* r = Runtime::current();
  if (r != nullptr) [[likely]]
    return &r->direct();
  kasane::runtime::api_fail_not_running(call);
  return nullptr;
}

Cursor contiguous(std::size_t bytes) noexcept { return Cursor(Strides{.dimensions = 1, .count = {bytes}}); }

// Out of line: a Cursor is large, and most calls need none.
[[gnu::noinline]] int get_elsewhere(Direct& d, void* destination, const void* global, std::size_t bytes,
                                    const char* call, const void* site) {
  d.check(global, contiguous(bytes), false, call, site);
  return answer(d.get(destination, global, contiguous(bytes), nullptr), call);
}
[[gnu::noinline]] int put_elsewhere(Direct& d, void* global, const void* source, std::size_t bytes,
                                    const char* call, const void* site) {
  d.check(global, contiguous(bytes), true, call, site);
  return answer(d.put(global, source, contiguous(bytes), nullptr), call);
}

/// Calls with(cursor) for a patch of this shape; a wrong shape is an error.
template <class With>
int with_shape(const kasane_strides_t* shape, const char* call, const With& with) {
  if (shape == nullptr || shape->dimensions == 0 || shape->dimensions > kasane::comm::kMaxDimensions)
    return api_fail(EINVAL, call, "a shape has 1 to 8 dimensions");
  Strides s{.dimensions = shape->dimensions};
  bool empty = false;
  for (std::uint32_t d = 0; d < shape->dimensions; ++d) {
    s.count[d] = shape->count[d];
    empty |= shape->count[d] == 0;
    if (d != 0) {
      s.remote_stride[d - 1] = shape->global_stride[d - 1];
      s.local_stride[d - 1] = shape->local_stride[d - 1];
    }
  }
  Cursor cursor = empty ? contiguous(0) : Cursor(s);
  return answer(with(cursor), call);
}

/// The pieces relative to offset 0 and to address 0.
std::vector<kasane::comm::Piece> pieces_of(const kasane_piece_t* pieces, std::size_t count) {
  const kasane::mem::Space& space = Runtime::current()->space();
  const kasane::ult::RuntimeSection section;  // private memory
  std::vector<kasane::comm::Piece> list;
  list.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    list.push_back(
        {space.offset(pieces[i].global), reinterpret_cast<std::uintptr_t>(pieces[i].local), pieces[i].bytes});
  }
  return list;
}

std::complex<double> scale_of(const double scale[2]) noexcept {
  return scale == nullptr ? std::complex<double>{1, 0} : std::complex<double>{scale[0], scale[1]};
}

Direct::Id* id_of(kasane_pending_t* pending) noexcept { return pending == nullptr ? nullptr : &pending->id; }

bool right_element(kasane_element_t e) noexcept { return e >= KASANE_INT32 && e <= KASANE_COMPLEX_DOUBLE; }

/// Integers use the whole part of the scale, which has to fit into 64 bits.
bool right_scale(kasane_element_t e, const double scale[2]) noexcept {
  return scale == nullptr || (e != KASANE_INT32 && e != KASANE_INT64) ||
         (scale[0] >= -0x1p63 && scale[0] < 0x1p63);
}

/// What accumulates can use; else the error.
int check_element(const char* call, kasane_element_t element, const double scale[2]) {
  if (!right_element(element)) return api_fail(EINVAL, call, "no such kind of element");
  if (!right_scale(element, scale))
    return api_fail(EINVAL, call, "the scale of integers must be a number within 64 bits");
  return 0;
}

// What is not here, after all was checked. Out of line: as get_elsewhere().
[[gnu::noinline]] int accumulate_elsewhere(Direct& d, const char* call, const void* site, void* global,
                                           const void* source, const Cursor& cursor, kasane_element_t element,
                                           const double scale[2], kasane_pending_t* pending) {
  d.check(global, cursor, true, call, site);
  return answer(
      d.accumulate(global, source, cursor, static_cast<Element>(element), scale_of(scale), id_of(pending)),
      call);
}

struct AtomicCall {
  kasane_atomic_op_t op;
  std::uint32_t width;
  void* global;
  std::uint64_t operand, compare;
  Direct::OldValue old;
};

int atomic(const AtomicCall& a, kasane_pending_t* pending, const void* site) {
  constexpr const char* call = "kasane::atomic";
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  if (a.op < KASANE_FETCH_ADD || a.op > KASANE_COMPARE_SWAP)
    return api_fail(EINVAL, call, "no such operation");
  if (a.width != 4 && a.width != 8) return api_fail(EINVAL, call, "atomics are 4 or 8 bytes wide");
  keep_output_in_order();
  d->check(a.global, contiguous(a.width), true, call, site);
  return answer(d->atomic(static_cast<AtomicOp>(a.op), static_cast<Width>(a.width), a.global, a.operand,
                          a.compare, a.old, id_of(pending)),
                call);
}

}  // namespace

extern "C" {

int kasane_wait(kasane_pending_t* pending) {
  constexpr const char* call = "kasane::pending::wait";
  if (pending->id == 0) return 0;
  Direct* d = direct_for(call);
  return d == nullptr ? EPERM : answer(d->wait(pending->id), call);
}

int kasane_test(kasane_pending_t* pending, int* done) {
  constexpr const char* call = "kasane::pending::ready";
  *done = 1;
  if (pending->id == 0) return 0;
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  const auto tested = d->test(pending->id);
  if (!tested) return api_fail(tested.error(), call);
  *done = *tested ? 1 : 0;
  return 0;
}

int kasane_flush(void) {
  constexpr const char* call = "kasane::flush";
  Direct* d = direct_for(call);
  return d == nullptr ? EPERM : answer(d->flush(), call);
}

int kasane_get(void* destination, const void* global, size_t bytes) {
  constexpr const char* call = "kasane::get";
  Direct* d = direct_for(call);
  if (d == nullptr) [[unlikely]]
    return EPERM;
  if (d->get_here(destination, global, bytes)) [[likely]]
    return 0;
  return get_elsewhere(*d, destination, global, bytes, call, __builtin_return_address(0));
}

int kasane_get_async(void* destination, const void* global, size_t bytes, kasane_pending_t* pending) {
  constexpr const char* call = "kasane::get_async";
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  if (d->get_here(destination, global, bytes)) return 0;
  d->check(global, contiguous(bytes), false, call, __builtin_return_address(0));
  return answer(d->get(destination, global, contiguous(bytes), id_of(pending)), call);
}

int kasane_put(void* global, const void* source, size_t bytes) {
  constexpr const char* call = "kasane::put";
  Direct* d = direct_for(call);
  if (d == nullptr) [[unlikely]]
    return EPERM;
  if (d->put_here(global, source, bytes)) [[likely]]
    return 0;
  return put_elsewhere(*d, global, source, bytes, call, __builtin_return_address(0));
}

int kasane_put_async(void* global, const void* source, size_t bytes, kasane_pending_t* pending) {
  constexpr const char* call = "kasane::put_async";
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  if (d->put_here(global, source, bytes)) return 0;
  d->check(global, contiguous(bytes), true, call, __builtin_return_address(0));
  return answer(pending == nullptr ? d->put_detached(global, source, contiguous(bytes))
                                   : d->put(global, source, contiguous(bytes), id_of(pending)),
                call);
}

int kasane_get_strided(void* destination, const void* global, const kasane_strides_t* shape,
                       kasane_pending_t* pending) {
  constexpr const char* call = "kasane::get_strided";
  Direct* d = direct_for(call);
  const void* site = __builtin_return_address(0);
  return d == nullptr ? EPERM : with_shape(shape, call, [&](Cursor& c) -> kasane::Result<void> {
    if (d->get_here(destination, global, c)) return {};
    d->check(global, c, false, call, site);
    return d->get(destination, global, c, id_of(pending));
  });
}

int kasane_put_strided(void* global, const void* source, const kasane_strides_t* shape,
                       kasane_pending_t* pending) {
  constexpr const char* call = "kasane::put_strided";
  Direct* d = direct_for(call);
  const void* site = __builtin_return_address(0);
  return d == nullptr ? EPERM : with_shape(shape, call, [&](Cursor& c) -> kasane::Result<void> {
    if (d->put_here(global, source, c)) return {};
    d->check(global, c, true, call, site);
    return d->put(global, source, c, id_of(pending));
  });
}

int kasane_get_vector(const kasane_piece_t* pieces, size_t count, kasane_pending_t* pending) {
  constexpr const char* call = "kasane::get_vector";
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  std::byte* const base = Runtime::current()->space_base();
  const auto list = pieces_of(pieces, count);
  Cursor cursor{std::span<const kasane::comm::Piece>(list)};
  if (d->get_here(nullptr, base, cursor)) return 0;
  d->check(base, cursor, false, call, __builtin_return_address(0));
  return answer(d->get(nullptr, base, cursor, id_of(pending)), call);
}

int kasane_put_vector(const kasane_piece_t* pieces, size_t count, kasane_pending_t* pending) {
  constexpr const char* call = "kasane::put_vector";
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  std::byte* const base = Runtime::current()->space_base();
  const auto list = pieces_of(pieces, count);
  Cursor cursor{std::span<const kasane::comm::Piece>(list)};
  if (d->put_here(base, nullptr, cursor)) return 0;
  d->check(base, cursor, true, call, __builtin_return_address(0));
  return answer(d->put(base, nullptr, cursor, id_of(pending)), call);
}

int kasane_send_for(const void* global, const kasane_strides_t* shape, int access, size_t* absent) {
  constexpr const char* call = "kasane_send_for";
  *absent = 0;
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  if (access != KASANE_READ && access != KASANE_READ_WRITE)
    return api_fail(EINVAL, call, "what is sent for is read");
  Runtime* const r = Runtime::current();
  if (!r->has_tiers()) return 0;
  return with_shape(shape, call, [&](Cursor& c) -> kasane::Result<void> {
    *absent = r->send_for(global, c, static_cast<kasane::dsm::Use>(access));
    return {};
  });
}

int kasane_accumulate(void* global, const void* source, size_t count, kasane_element_t element,
                      const double scale[2], kasane_pending_t* pending) {
  constexpr const char* call = "kasane::accumulate";
  const std::size_t size =
      right_element(element) ? kasane::comm::element_bytes(static_cast<Element>(element)) : 1;
  if (count > static_cast<std::size_t>(-1) / size)
    return api_fail(EINVAL, call, "more elements than 64 bits can address");
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  if (const int wrong = check_element(call, element, scale); wrong != 0) return wrong;
  const std::size_t bytes = count * size;
  const std::size_t done =
      d->accumulate_here(global, source, bytes, static_cast<Element>(element), scale_of(scale));
  if (done == bytes) [[likely]]
    return 0;
  return accumulate_elsewhere(*d, call, __builtin_return_address(0), static_cast<char*>(global) + done,
                              static_cast<const char*>(source) + done, contiguous(bytes - done), element,
                              scale, pending);
}

int kasane_accumulate_strided(void* global, const void* source, const kasane_strides_t* shape,
                              kasane_element_t element, const double scale[2], kasane_pending_t* pending) {
  constexpr const char* call = "kasane::accumulate_strided";
  int code = 0;
  const void* site = __builtin_return_address(0);
  const int shaped = with_shape(shape, call, [&](Cursor& c) {
    Direct* d = direct_for(call);
    code = d == nullptr ? EPERM : check_element(call, element, scale);
    if (code == 0 && !d->accumulate_here(global, source, c, static_cast<Element>(element), scale_of(scale)))
      code = accumulate_elsewhere(*d, call, site, global, source, c, element, scale, pending);
    return kasane::Result<void>{};
  });
  return shaped != 0 ? shaped : code;
}

int kasane_atomic(kasane_atomic_op_t op, uint32_t width, void* global, uint64_t operand, uint64_t compare,
                  uint64_t* old, kasane_pending_t* pending) {
  return atomic({op, width, global, operand, compare, {old, sizeof *old}}, pending,
                __builtin_return_address(0));
}

int kasane_atomic_async(kasane_atomic_op_t op, uint32_t width, void* global, uint64_t operand,
                        uint64_t compare, void* old, kasane_pending_t* pending) {
  return atomic({op, width, global, operand, compare, {old, width}}, pending, __builtin_return_address(0));
}

int kasane_copy(void* to, const void* from, size_t bytes, kasane_pending_t* pending) {
  constexpr const char* call = "kasane::copy";
  Direct* d = direct_for(call);
  if (d == nullptr) return EPERM;
  d->check(from, contiguous(bytes), false, call, __builtin_return_address(0));
  d->check(to, contiguous(bytes), true, call, __builtin_return_address(0));
  return answer(d->copy(to, from, bytes, id_of(pending)), call);
}

}  // extern "C"
