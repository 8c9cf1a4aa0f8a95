// Puts the messages of a link together from the pieces of its Data frames (link_frames.h).
//
// It holds the bytes of one incomplete message, at most kLinkMessageBytesMax. Thread rule: one
// thread.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_MESSAGE_ASSEMBLY_H_
#define OSPREY_SERVER_CLUSTER_LINKS_MESSAGE_ASSEMBLY_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "rdma/transport.h"
#include "server/cluster/links/link_frames.h"

namespace osprey {

class MessageAssembly {
 public:
  // Takes a Data frame, and calls `take` with each message that it completes, in order. Errors:
  // INVALID_ARGUMENT, with what is wrong; the link must end, and messages before the wrong piece
  // have been taken. REQUIRES: ParseLinkHeader(frame) is kData; no call has failed before.
  absl::Status Take(rdma::Bytes frame,
                    absl::FunctionRef<void(uint8_t kind, std::string body)> take);

 private:
  absl::Status CheckPiece(const PieceHeader& piece, size_t bytes_left) const;

  bool under_way_ = false;
  PieceHeader first_;  // of the message under way
  std::string body_;   // … and its bytes so far
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_MESSAGE_ASSEMBLY_H_
