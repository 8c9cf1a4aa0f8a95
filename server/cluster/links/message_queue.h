// The messages that one link has still to send, and the frames in which they go: several small
// messages in one, a long one in many.
//
//   queue.Push(kind, body)
//   while (credits) { Send(queue.NextFrame(frame_bytes_max)); queue.Sent(); }
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_MESSAGE_QUEUE_H_
#define OSPREY_SERVER_CLUSTER_LINKS_MESSAGE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "rdma/transport.h"
#include "server/cluster/links/link_frames.h"

namespace osprey {

class MessageQueue {
 public:
  // `bytes_max` bounds the bodies and their bookkeeping, but for one longer message alone.
  explicit MessageQueue(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes a message. Errors, after which nothing has changed: INVALID_ARGUMENT (longer than
  // kLinkMessageBytesMax), RESOURCE_EXHAUSTED (longer than room(), or that is 0).
  absl::Status Push(uint8_t kind, std::string body);
  // The longest body, in bytes, that Push takes now. 0: it takes none, not even an empty one.
  uint64_t room() const;
  bool empty() const { return messages_.empty(); }
  // Drops all messages.
  void Clear();

  // The next Data frame, of at most `frame_bytes_max` bytes, in pieces: views into the queue, valid
  // until its next call. The same frame again until Sent. REQUIRES: not empty; frame_bytes_max is
  // at least kLinkFrameBytesMin.
  absl::Span<const rdma::Bytes> NextFrame(size_t frame_bytes_max);
  // The last frame of NextFrame is on its way. REQUIRES: no Push since.
  void Sent();

 private:
  struct Queued {
    uint8_t kind = 0;
    std::string body;
  };

  uint64_t Charge(const std::string& body) const;

  const uint64_t bytes_max_;
  std::deque<Queued> messages_;
  uint64_t charged_ = 0;     // for all in messages_
  uint64_t first_sent_ = 0;  // bytes of the first message that have been sent
  // Of the last frame.
  std::vector<PieceHeader> headers_;
  std::vector<rdma::Bytes> pieces_;
  size_t frame_messages_ = 0;      // that it completes
  uint64_t frame_first_sent_ = 0;  // of the first message after them
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_MESSAGE_QUEUE_H_
