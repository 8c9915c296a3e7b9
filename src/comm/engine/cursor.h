// SPDX-License-Identifier: Apache-2.0
// Walks the pieces of a strided or vector operation, one after the other, and keeps its position: an
// operation that met a full queue goes on later.
// Thread safety: belongs to the thread that drives the operation.
// Invariant: piece() is never empty unless done().
#pragma once

#include <algorithm>
#include <span>

#include "comm/operations.h"

namespace kasane::comm {

class Cursor {
 public:
  Cursor() noexcept = default;
  explicit Cursor(const Strides& shape) noexcept : shape_(shape) {
    fold();
    left_ = 1;
    for (std::uint32_t d = 1; d < shape_.dimensions; ++d) left_ *= shape_.count[d];
    if (shape_.count[0] == 0) left_ = 0;
  }
  /// The pieces must outlive the walk.
  explicit Cursor(std::span<const Piece> pieces) noexcept : pieces_(pieces.data()), left_(pieces.size()) {
    skip_empty();
  }

  [[nodiscard]] bool done() const noexcept { return left_ == 0; }
  /// Does it walk a list of pieces (not a patch)?
  [[nodiscard]] bool listed() const noexcept { return pieces_ != nullptr; }
  /// Is the current piece the last?
  [[nodiscard]] bool single() const noexcept { return left_ == 1; }
  /// What is left of the current piece; offsets are relative to the operation's addresses.
  [[nodiscard]] Piece piece() const noexcept {
    if (pieces_ != nullptr) {
      return {pieces_->remote_offset + taken_, pieces_->local_offset + taken_, pieces_->bytes - taken_};
    }
    return {remote_ + taken_, local_ + taken_, shape_.count[0] - taken_};
  }
  void consume(std::uint64_t bytes) noexcept {
    taken_ += bytes;
    if (taken_ < (pieces_ != nullptr ? pieces_->bytes : shape_.count[0])) return;
    taken_ = 0;
    --left_;
    if (pieces_ != nullptr) {
      ++pieces_;
      skip_empty();
    } else if (left_ != 0) {
      step();
    }
  }

 private:
  void skip_empty() noexcept {
    while (left_ != 0 && pieces_->bytes == 0) {
      ++pieces_;
      --left_;
    }
  }
  /// Rows that lie end to end on both sides are one.
  void fold() noexcept {
    while (shape_.dimensions > 1 && shape_.remote_stride[0] == shape_.count[0] &&
           shape_.local_stride[0] == shape_.count[0]) {
      shape_.count[0] *= shape_.count[1];
      std::copy(shape_.count + 2, shape_.count + shape_.dimensions, shape_.count + 1);
      std::copy(shape_.remote_stride + 1, shape_.remote_stride + shape_.dimensions - 1, shape_.remote_stride);
      std::copy(shape_.local_stride + 1, shape_.local_stride + shape_.dimensions - 1, shape_.local_stride);
      --shape_.dimensions;
    }
  }
  /// To the next row; the lowest dimension advances first, as in an odometer.
  void step() noexcept {
    for (std::uint32_t d = 1; d < shape_.dimensions; ++d) {
      remote_ += shape_.remote_stride[d - 1];
      local_ += shape_.local_stride[d - 1];
      if (++index_[d] < shape_.count[d]) return;
      remote_ -= shape_.remote_stride[d - 1] * shape_.count[d];
      local_ -= shape_.local_stride[d - 1] * shape_.count[d];
      index_[d] = 0;
    }
  }

  Strides shape_{};
  std::uint64_t index_[kMaxDimensions] = {};
  std::uint64_t remote_ = 0, local_ = 0;
  const Piece* pieces_ = nullptr;  ///< vector only
  std::uint64_t left_ = 0;         ///< pieces, with the current one
  std::uint64_t taken_ = 0;        ///< of the current piece
};

}  // namespace kasane::comm
