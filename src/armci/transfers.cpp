// SPDX-License-Identifier: Apache-2.0
#include "armci/transfers.h"

#include <cerrno>
#include <optional>
#include <vector>

#include "armci/library.h"
#include "armci/scale.h"

namespace kasane::armci {
namespace {

bool is_global(const void* address) noexcept {
  uint32_t rank = 0;
  return kasane_where(address, &rank) == 0;
}

void check(const Call& call, const void* global, int code) {
  if (code != 0) [[unlikely]]
    fatal_at(call.name, call.process, global, code);
}

/// Rows that may have a whole page in them.
constexpr std::size_t kPageBytes = 64 << 10;
/// Sends for what of the patch is on SSD; returns how much that is.
std::size_t send_for(const Patch& patch, void* global, int access) {
  std::size_t all = 0;
  each_shape(patch, patch.dimensions, static_cast<char*>(global), nullptr,
             [&](const char* g, const char*, const kasane_strides_t& shape) {
               std::size_t absent = 0;
               if (kasane_send_for(g, &shape, access, &absent) == 0) all += absent;
             });
  return all;
}

/// What this process owns is copied plainly, after it was sent for.
void send_for_own(const Patch& patch, void* global, int access) {
  if (!patch.is_small()) send_for(patch, global, access);
}

/// One get at a time is pending on a kasane_pending_t: all but the first wait.
kasane_pending_t* pending_get(const Call& call) noexcept {
  return call.pending != nullptr && call.pending->id == 0 ? call.pending : nullptr;
}

/// What accumulates in this process's private memory.
bool accumulated_here(const Call& call, int code, int type, const void* scale, void* global,
                      const char* local, const Patch& patch) {
  if (code != EINVAL || call.process != library.me || is_global(global)) return false;
  need_started(call.name);
  each_row(patch, patch.dimensions, static_cast<char*>(global), const_cast<char*>(local),
           [&](char* to, const char* from, std::size_t n) { added_here(type, scale, to, from, n); });
  return true;
}

/// Whether all elements are aligned to what is accumulated, on both sides.
bool aligned(const Scale& s, const void* global, const void* local, const Patch& patch) noexcept {
  auto bits = reinterpret_cast<std::uintptr_t>(global) | reinterpret_cast<std::uintptr_t>(local);
  for (std::uint32_t d = 1; d < patch.dimensions; ++d)
    bits |= patch.global_stride[d - 1] | patch.local_stride[d - 1];
  return bits % s.element_bytes == 0;
}

/// Reads, adds and writes under a lock of the process: atomic among such accumulates.
void accumulate_unaligned(const Call& call, int type, const void* scale, void* global, const void* local,
                          const Patch& patch) {
  std::vector<char> sums(patch.total());
  const Patch packed = patch.packed();
  const Call blocking = {call.name, call.process};
  const ProcessLock lock(call.name, call.process);
  get(blocking, global, sums.data(), packed);
  each_packed_row(
      patch, sums.data(), global, const_cast<void*>(local),
      [&](char* to, char*, const char* from, std::size_t n) { added_here(type, scale, to, from, n); });
  put(blocking, global, sums.data(), packed);
}

}  // namespace

void put(const Call& call, void* global, const void* local, const Patch& patch) {
  if (patch.count[0] == 0) return;
  auto* const to = static_cast<char*>(global);
  auto* const from = static_cast<char*>(const_cast<void*>(local));
  // To its own whole pages direct access puts without reading them.
  const bool pages = patch.count[0] >= kPageBytes;
  if (call.process == library.me && !(pages && is_global(global) && !is_global(local))) {
    if (!pages) send_for_own(patch, global, KASANE_READ_WRITE);
    return each_row(patch, patch.dimensions, to, from,
                    [](char* t, const char* f, std::size_t n) { copy_row(t, f, n); });
  }
  if (patch.contiguous()) {
    const std::size_t n = patch.count[0];
    return check(
        call, global,
        call.pending == nullptr ? kasane_put(to, from, n) : kasane_put_async(to, from, n, call.pending));
  }
  each_shape(patch, patch.dimensions, to, from, [&](char* t, const char* f, const kasane_strides_t& shape) {
    check(call, t, kasane_put_strided(t, f, &shape, call.pending));
  });
}

void get(const Call& call, const void* global, void* local, const Patch& patch) {
  if (patch.count[0] == 0) return;
  auto* const from = static_cast<char*>(const_cast<void*>(global));
  auto* const to = static_cast<char*>(local);
  if (call.process == library.me) {
    send_for_own(patch, from, KASANE_READ);
    return each_row(patch, patch.dimensions, from, to,
                    [](const char* f, char* t, std::size_t n) { copy_row(t, f, n); });
  }
  if (patch.contiguous()) {
    const std::size_t n = patch.count[0];
    kasane_pending_t* const pending = pending_get(call);
    return check(call, global,
                 pending == nullptr ? kasane_get(to, from, n) : kasane_get_async(to, from, n, pending));
  }
  each_shape(patch, patch.dimensions, from, to, [&](const char* f, char* t, const kasane_strides_t& shape) {
    check(call, f, kasane_get_strided(t, f, &shape, pending_get(call)));
  });
}

void accumulate(const Call& call, int type, const void* scale, void* global, const void* local,
                const Patch& patch) {
  const Scale s = scale_for(type, scale);
  if (!s.known) fatal("%s: no accumulate of type %d", call.name, type);
  if (patch.count[0] % s.type_bytes != 0)
    fatal("%s: %zu bytes are no whole elements of %zu bytes", call.name, patch.count[0], s.type_bytes);
  if (patch.count[0] == 0) return;
  if (!aligned(s, global, local, patch)) [[unlikely]]
    return accumulate_unaligned(call, type, scale, global, local, patch);
  std::vector<char> products;
  std::optional<Patch> of_products;
  auto* from = static_cast<char*>(const_cast<void*>(local));
  if (s.multiply_first) {
    products.resize(patch.total());
    each_packed_row(patch, products.data(), global, from, [&](char* to, char*, const char* f, std::size_t n) {
      multiplied(type, scale, to, f, n);
    });
    from = products.data();
    of_products = patch.packed();
  }
  const double factor[2] = {s.factor, 0};
  const auto done = [&](int code, char* t) {
    if (code == 0) [[likely]]
      return true;
    if (!accumulated_here(call, code, type, scale, global, static_cast<const char*>(local), patch))
      fatal_at(call.name, call.process, t, code);
    return false;
  };
  if (patch.contiguous()) {
    const std::size_t elements = patch.count[0] / s.element_bytes;
    auto* const to = static_cast<char*>(global);
    done(kasane_accumulate(to, from, elements, s.element, factor, call.pending), to);
    return;
  }
  bool here = false;  // in private memory all is done by the first part
  each_shape(of_products ? *of_products : patch, patch.dimensions, static_cast<char*>(global), from,
             [&](char* t, const char* f, const kasane_strides_t& shape) {
               if (!here)
                 here = !done(kasane_accumulate_strided(t, f, &shape, s.element, factor, call.pending), t);
             });
}

// ---- later -----------------------------------------------------------------------------------------------

bool sent_for(const Deferred& t) {
  if (t.patch.is_small()) return false;
  // whole pages are put at once, and nothing is read for them
  if (t.kind == Deferred::Kind::put && t.patch.count[0] >= kPageBytes) return false;
  return send_for(t.patch, t.global, t.kind == Deferred::Kind::get ? KASANE_READ : KASANE_READ_WRITE) != 0;
}

void keep_source(Deferred& t) {
  if (t.kind == Deferred::Kind::get) return;
  t.bytes.resize(t.patch.total());
  each_packed_row(t.patch, t.bytes.data(), t.global, t.local,
                  [](char* to, char*, const char* from, std::size_t n) { copy_row(to, from, n); });
  t.local = t.bytes.data();
  t.patch = t.patch.packed();
}

void transfer(const Deferred& t, kasane_pending_t* pending) {
  const Call call = {t.name, t.process, pending};
  switch (t.kind) {
    case Deferred::Kind::put: return put(call, t.global, t.local, t.patch);
    case Deferred::Kind::get: return get(call, t.global, t.local, t.patch);
    case Deferred::Kind::accumulate: return accumulate(call, t.type, t.scale, t.global, t.local, t.patch);
  }
}

}  // namespace kasane::armci
