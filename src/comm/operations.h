// SPDX-License-Identifier: Apache-2.0
// The operations of the communication engine (comm/engine/engine.h) as plain parameters, after the thesis's
// list 4.1: source, destination, and the callback that runs on completion. Remote and local memory are
// (registered region, offset), so nothing is registered per operation; local memory that lies in no region is
// (kPrivateMemory, address).
// Thread safety: plain data.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/transport.h"

namespace kasane::comm {

/// The region of memory of this process, where an offset is an address. A LocalAddr may name it, a RemoteAddr
/// never does.
inline constexpr RegionId kPrivateMemory{0xFFFFFFFFu};

struct LocalAddr {
  RegionId region;
  std::uint64_t offset;
};
[[nodiscard]] inline LocalAddr private_memory(const void* p) noexcept {
  return {kPrivateMemory, reinterpret_cast<std::uintptr_t>(p)};
}

struct Callback {
  void (*fn)(void* context, Status) noexcept = nullptr;  ///< null: none
  void* context = nullptr;
};

struct ReadParams {
  RemoteAddr from;
  LocalAddr to;
  std::size_t bytes;
  Callback on_complete;
};

struct WriteParams {
  RemoteAddr to;
  LocalAddr from;
  std::size_t bytes;
  Callback on_complete;
};

/// Writes the bytes, then sets the word at flag_offset of the same rank and region to value
/// (Transport::write_notify). Within a host, bytes and flag in one 64-byte line of the target travel as one
/// line.
struct WriteNotifyParams {
  RemoteAddr to;
  LocalAddr from;
  std::size_t bytes;
  std::uint64_t flag_offset;
  std::uint64_t value;
  Callback on_complete;
};

inline constexpr std::size_t kMaxDimensions = 8;
/// A patch: count[0] contiguous bytes, count[i] times at distances of stride[i-1] bytes (terms of ARMCI and
/// GASNet-EX). dimensions = 1 is contiguous.
struct Strides {
  std::uint32_t dimensions = 1;
  std::uint64_t count[kMaxDimensions] = {};
  std::uint64_t remote_stride[kMaxDimensions - 1] = {};
  std::uint64_t local_stride[kMaxDimensions - 1] = {};
};
struct StridedParams {
  RemoteAddr remote;
  LocalAddr local;
  Strides shape;
  Callback on_complete;
};

struct Piece {
  std::uint64_t remote_offset, local_offset, bytes;
};
struct VectorParams {
  Rank rank;
  RegionId remote_region, local_region;
  std::span<const Piece> pieces;
  Callback on_complete;
};

/// Third-party copy (as acp_copy): the caller may be source, destination or neither.
struct CopyParams {
  RemoteAddr from, to;
  std::size_t bytes;
  Callback on_complete;
};

struct AtomicParams {
  AtomicOp op;
  Width width;
  RemoteAddr at;
  std::uint64_t operand;
  std::uint64_t compare = 0;  ///< compare_swap only
  /// old value, zero-extended; null: none, which is cheaper (add, and, or, xor)
  std::uint64_t* result = nullptr;
  Callback on_complete;
};

enum class Element : std::uint8_t { int32, int64, float32, float64, complex64, complex128 };
[[nodiscard]] constexpr std::size_t element_bytes(Element e) noexcept {
  return e == Element::complex128 ? 16 : e == Element::int32 || e == Element::float32 ? 4 : 8;
}
/// What is added by itself, and what addresses are multiples of.
[[nodiscard]] constexpr std::size_t part_bytes(Element e) noexcept {
  return e == Element::complex64 || e == Element::complex128 ? element_bytes(e) / 2 : element_bytes(e);
}
/// y += a · x, element by element, atomic with respect to other accumulates of the same element type.
/// Integers use the real part of scale, truncated; it must fit in 64 bits.
struct AccumulateParams {
  RemoteAddr to;   ///< y, aligned to its element (complex: to its part)
  LocalAddr from;  ///< x
  Element element;
  std::complex<double> scale{1.0, 0.0};
  Strides shape;  ///< in bytes; count[0] is a multiple of element_bytes
  Callback on_complete;
};

/// Active message, copied before the call returns: up to kMaxPayload bytes. Handlers:
/// Transport::set_handler, ids below kFirstEngineHandler.
struct SendParams {
  Rank to;
  HandlerId handler;
  std::span<const std::byte> payload;
  Callback on_complete;  ///< the payload may be reused; the handler need not have run
};

/// As SendParams, with one 64-bit answer (Transport::reply).
struct RequestParams {
  Rank to;
  HandlerId handler;
  std::span<const std::byte> payload;
  std::uint64_t* answer;
  Callback on_complete;
};

struct FlushParams {
  Rank rank;  ///< kNoRank: all
  Callback on_complete;
};

}  // namespace kasane::comm
