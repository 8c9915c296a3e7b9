// SPDX-License-Identifier: Apache-2.0
// A byte that was changed elsewhere is noticed wherever in the block it lies, with the owner's memory mapped
// and without.
#include "dsm/last_seen.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace {

using kasane::dsm::LastSeen;
using kasane::mem::kBlockBytes;

struct Block {
  std::array<std::byte, kBlockBytes> bytes;
  Block() {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  }
};

/// What a fetch of `owners` says.
bool changed(const Block& owners, bool mapped) {
  Block mine;
  const LastSeen seen(mine.bytes.data(), mapped ? owners.bytes.data() : nullptr);
  mine = owners;
  return seen.changed();
}

TEST(LastSeen, TellsEveryByteThatIsAnother) {
  for (const bool mapped : {false, true}) {
    EXPECT_FALSE(changed(Block(), mapped));
    for (std::size_t at = 0; at < kBlockBytes; ++at) {
      Block other;
      other.bytes[at] ^= std::byte{1} << at % 8;
      ASSERT_TRUE(changed(other, mapped)) << "byte " << at;
    }
  }
}

}  // namespace
