// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before they have a transport: where they are (comm/ucx), and the names and
// answers by which the ranks of a host find each other. The input are the answers of the other ranks.
#include "comm/bootstrap/rendezvous.h"

#include <vector>

#include "comm/shm/shm_transport.h"
#include "comm/ucx/network.h"
#include "fuzz.h"

using namespace kasane;
using kasane::fuzz::expect;

namespace {

/// One rank; what the others say is in the input. As long as it says nothing else, they say what this one
/// does.
class Told final : public comm::OutOfBand {
 public:
  Told(fuzz::Input& input, Rank rank, std::uint32_t ranks) : input_(input), rank_(rank), ranks_(ranks) {}
  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return ranks_; }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    std::vector<std::string> all;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      const bool same = r == raw(rank_) || input_.below(4) == 0;
      all.push_back(same ? std::string(mine) : input_.text());
    }
    return all;
  }

 private:
  fuzz::Input& input_;
  Rank rank_;
  std::uint32_t ranks_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  fuzz::Input input(bytes, size);
  if (input.below(2) == 0) {
    std::vector<comm::ucx::RankLocation> all;
    for (std::uint32_t n = 1 + input.below(4); n != 0; --n) {
      const auto one = comm::ucx::unpacked(input.text());
      if (!one) return 0;
      const auto again = comm::ucx::unpacked(comm::ucx::packed(*one));
      expect(again && comm::ucx::packed(*again) == comm::ucx::packed(*one), "a location is read as written");
      for (const auto& i : one->interfaces) expect(i.prefix <= 32, "a network of IPv4");
      all.push_back(*one);
    }
    for (const auto& network : comm::ucx::common_networks(all))
      expect(network.of_rank.size() == all.size(), "a network has an interface of each rank");
    return 0;
  }
  const std::uint32_t ranks = 1 + input.below(4);
  Told others(input, Rank{input.below(ranks)}, ranks);
  const auto job =
      comm::rendezvous(others, {.shared_bytes = comm::shm::job_bytes, .domain = {}, .limit_ns = 1'000'000});
  if (job) comm::close_job(*job);
  return 0;
}
