// What a hostile client sends once it is let in: requests that are mostly nearly right, drawn from
// the input.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_SERVER_FRAMES_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_SERVER_FRAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rdma/wire/protocol.h"
#include "tests/fuzz/support/input.h"
#include "tests/fuzz/support/server_peer.h"

namespace osprey::server {

inline constexpr uint64_t kHashSeed = 42;
inline constexpr uint64_t kValueBytesMax = 80 << 10;

class HostileFrames {
 public:
  // Of a server whose region is so long.
  HostileFrames(fuzz::Input& input, uint64_t region_bytes)
      : input_(input), region_bytes_(region_bytes) {}

  std::string RequestFrame(Peer& peer);
  std::string BatchFrame(Peer& peer);
  // One of eight with other bytes, or of another length.
  std::string Spoiled(std::string frame);

  // Keys of one home, of which no window holds all.
  static const std::vector<std::string>& MeetingKeys();

 private:
  std::string AnyKey();
  std::string AnyValue();
  uint64_t NextSequence(Peer& peer);
  template <typename Body>
  std::string Request(Peer& peer, rdma::Opcode opcode, const Body& body, absl::string_view payload,
                      bool numbered = true);
  template <typename Body>
  void AnyCondition(Body& body);
  std::string RendezvousFrame(Peer& peer, const std::string& key);
  // Of some line or item of the region.
  uint64_t AnyHint();

  fuzz::Input& input_;
  const uint64_t region_bytes_;
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_SERVER_FRAMES_H_
