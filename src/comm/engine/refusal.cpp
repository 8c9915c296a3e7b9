// SPDX-License-Identifier: Apache-2.0
// The checks, and the texts of their refusals.
#include "comm/engine/refusal.h"

#include <bit>

#include "comm/engine/engine.h"

namespace kasane::comm {
namespace {

enum class Why : std::uint8_t {
  nothing,
  rank,
  region,
  range,
  alignment,
  dimensions,
  shape_overflow,
  handler,
  payload,
  element,
  width,
  scale,
  own_region,
  address
};

struct RefusalRecord {
  Why why = Why::nothing;
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
};

// Through a call that is never inlined: a user-level thread may continue on another OS thread, and must not
// use an address that it computed on the first.
[[gnu::noinline]] RefusalRecord& last_refusal() noexcept {
  thread_local RefusalRecord refusal;
  return refusal;
}

bool refuse(Why why, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0,
            std::uint64_t d = 0) noexcept {
  last_refusal() = {.why = why, .a = a, .b = b, .c = c, .d = d};
  return false;
}

bool valid_place(const Bounds& bounds, RegionId region, std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (region == kLockRegion) return refuse(Why::own_region, raw(region));
  const std::uint64_t size = raw(region) < kMaxRegions ? bounds.region_bytes(bounds.engine, region) : 0;
  if (size == 0) return refuse(Why::region, raw(region));
  if (bytes > size || offset > size - bytes) return refuse(Why::range, raw(region), offset, bytes, size);
  return true;
}

/// (count - 1) · stride, added to *span; false: beyond 64 bits.
bool extend(std::uint64_t* span, std::uint64_t count, std::uint64_t stride) noexcept {
  std::uint64_t more;
  return !__builtin_mul_overflow(count - 1, stride, &more) && !__builtin_add_overflow(*span, more, span);
}

std::string text_of(const RefusalRecord& r) {
  const auto n = [](std::uint64_t v) { return std::to_string(v); };
  switch (r.why) {
    case Why::nothing: return "nothing was refused";
    case Why::rank: return "rank " + n(r.a) + " of a job of " + n(r.b) + " ranks";
    case Why::region: return "region " + n(r.a) + " is not attached";
    case Why::range:
      return "offset " + n(r.b) + " with " + n(r.c) + " bytes in region " + n(r.a) + ", which has " + n(r.d);
    case Why::alignment: return "offset " + n(r.a) + " is not a multiple of " + n(r.b);
    case Why::dimensions: return n(r.a) + " dimensions: 1 to " + n(kMaxDimensions) + " can be";
    case Why::shape_overflow: return "counts and strides beyond 64 bits";
    case Why::handler:
      return "handler " + n(r.a) + ": from " + n(kFirstEngineHandler) + " on they are the engine's";
    case Why::payload: return "a payload of " + n(r.a) + " bytes: at most " + n(r.b) + " can be";
    case Why::element: return n(r.a) + " is not a multiple of the element's " + n(r.b) + " bytes";
    case Why::scale:
      return "an integer's scale of " + std::to_string(std::bit_cast<double>(r.a)) +
             ": its whole part must be one of 64 bits";
    case Why::own_region: return "region " + n(r.a) + " is the engine's own";
    case Why::address: return n(r.b) + " bytes at address " + n(r.a) + " of this process";
    case Why::width: return "an atomic of " + n(r.a) + " bytes: 4 or 8 can be";
  }
  return {};
}

}  // namespace

bool valid_rank(const Bounds& bounds, Rank rank) noexcept {
  return raw(rank) < bounds.ranks || refuse(Why::rank, raw(rank), bounds.ranks);
}

bool valid_range(const Bounds& bounds, RemoteAddr at, std::uint64_t bytes) noexcept {
  return valid_rank(bounds, at.rank) && valid_place(bounds, at.region, at.offset, bytes);
}

bool valid_range(const Bounds& bounds, LocalAddr at, std::uint64_t bytes) noexcept {
  if (at.region != kPrivateMemory) return valid_place(bounds, at.region, at.offset, bytes);
  return bytes == 0 || at.offset != 0 || refuse(Why::address, at.offset, bytes);
}

bool valid_alignment(std::uint64_t offset, std::uint64_t alignment) noexcept {
  if (alignment != 4 && alignment != 8) return refuse(Why::width, alignment);
  return offset % alignment == 0 || refuse(Why::alignment, offset, alignment);
}

bool valid_shape(const Strides& s, std::uint64_t* remote_span, std::uint64_t* local_span) noexcept {
  if (s.dimensions == 0 || s.dimensions > kMaxDimensions) return refuse(Why::dimensions, s.dimensions);
  *remote_span = *local_span = 0;
  for (std::uint32_t d = 0; d < s.dimensions; ++d) {
    if (s.count[d] == 0) return true;  // an empty shape
  }
  *remote_span = *local_span = s.count[0];
  std::uint64_t pieces = 1;
  for (std::uint32_t d = 1; d < s.dimensions; ++d) {
    if (!extend(remote_span, s.count[d], s.remote_stride[d - 1]) ||
        !extend(local_span, s.count[d], s.local_stride[d - 1]) ||
        __builtin_mul_overflow(pieces, s.count[d], &pieces)) {
      return refuse(Why::shape_overflow);
    }
  }
  return true;
}

bool valid_message(const Bounds& bounds, Rank to, HandlerId handler, std::uint64_t bytes,
                   std::uint64_t most) noexcept {
  if (!valid_rank(bounds, to)) return false;
  if (raw(handler) >= kFirstEngineHandler) return refuse(Why::handler, raw(handler));
  return bytes <= most || refuse(Why::payload, bytes, most);
}

bool valid_elements(const AccumulateParams& p) noexcept {
  const std::uint64_t element = element_bytes(p.element);
  const bool complex = p.element == Element::complex64 || p.element == Element::complex128;
  const std::uint64_t part = complex ? element / 2 : element;
  if (!valid_alignment(p.to.offset, part) || !valid_alignment(p.from.offset, part)) return false;
  const bool whole = p.element == Element::int32 || p.element == Element::int64;
  const double scale = p.scale.real();
  // 2^63, exactly. Written so that NaN is refused, too.
  if (whole && !(scale >= -0x1p63 && scale < 0x1p63))
    return refuse(Why::scale, std::bit_cast<std::uint64_t>(scale));
  if (p.shape.count[0] % element != 0) return refuse(Why::element, p.shape.count[0], element);
  for (std::uint32_t d = 1; d < p.shape.dimensions; ++d) {
    if (!valid_alignment(p.shape.remote_stride[d - 1], part) ||
        !valid_alignment(p.shape.local_stride[d - 1], part))
      return false;
  }
  return true;
}

const std::string& refusal_text() noexcept {
  thread_local std::string text;
  text = text_of(last_refusal());
  return text;
}

}  // namespace kasane::comm
