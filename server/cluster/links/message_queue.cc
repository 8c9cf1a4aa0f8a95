#include "server/cluster/links/message_queue.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

// Charged for each message beside its body: what the queue keeps of it.
constexpr uint64_t kMessageCharge = 64;
// A frame has no more pieces than that.
constexpr size_t kPiecesMax = 128;
// The least part of a message, unless less is left, for which a frame is filled up.
constexpr uint64_t kPieceBytesMin = 256;

constexpr LinkHeader kDataHeader = {kLinkMagic, static_cast<uint8_t>(LinkFrame::kData), {}};

static_assert(sizeof(LinkHeader) + sizeof(PieceHeader) + kPieceBytesMin <= kLinkFrameBytesMin);

}  // namespace

uint64_t MessageQueue::Charge(const std::string& body) const {
  return body.size() + kMessageCharge;
}

void MessageQueue::Clear() {
  messages_.clear();
  pieces_.clear();
  charged_ = 0;
  first_sent_ = 0;
}

uint64_t MessageQueue::room() const {
  if (messages_.empty()) return kLinkMessageBytesMax;
  const uint64_t used = charged_ + kMessageCharge;
  return used >= bytes_max_ ? 0 : std::min(bytes_max_ - used, kLinkMessageBytesMax);
}

absl::Status MessageQueue::Push(uint8_t kind, std::string body) {
  if (body.size() > kLinkMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a message to a server has ", body.size(),
                                                   " bytes; it may have ", kLinkMessageBytesMax));
  }
  if (const uint64_t left = room(); left == 0 || body.size() > left) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the link's queue has room for ", left, " more bytes, not for ", body.size(),
                     "; send the message when earlier ones have left"));
  }
  charged_ += Charge(body);
  messages_.push_back({kind, std::move(body)});
  return absl::OkStatus();
}

absl::Span<const rdma::Bytes> MessageQueue::NextFrame(size_t frame_bytes_max) {
  assert(!messages_.empty() && frame_bytes_max >= kLinkFrameBytesMin);
  headers_.clear();
  headers_.reserve(kPiecesMax);  // pieces_ has views into it
  pieces_.clear();
  pieces_.push_back(LinkBodyBytes(kDataHeader));
  size_t room = frame_bytes_max - sizeof(LinkHeader);
  frame_messages_ = 0;
  frame_first_sent_ = first_sent_;
  while (frame_messages_ < messages_.size() && headers_.size() < kPiecesMax) {
    const Queued& message = messages_[frame_messages_];
    const uint64_t left = message.body.size() - frame_first_sent_;
    if (room < sizeof(PieceHeader) + std::min(left, kPieceBytesMin)) break;
    const uint64_t piece = std::min<uint64_t>(left, room - sizeof(PieceHeader));
    headers_.push_back(
        {message.body.size(), static_cast<uint32_t>(piece), message.kind, /*reserved=*/{}});
    pieces_.push_back(LinkBodyBytes(headers_.back()));
    if (piece > 0) {
      pieces_.emplace_back(
          reinterpret_cast<const std::byte*>(message.body.data()) + frame_first_sent_, piece);
    }
    room -= sizeof(PieceHeader) + piece;
    frame_first_sent_ += piece;
    if (piece < left) break;
    ++frame_messages_;
    frame_first_sent_ = 0;
  }
  return pieces_;
}

void MessageQueue::Sent() {
  assert(!pieces_.empty());
  for (; frame_messages_ > 0; --frame_messages_) {
    charged_ -= Charge(messages_.front().body);
    messages_.pop_front();
  }
  first_sent_ = frame_first_sent_;
  pieces_.clear();
}

}  // namespace osprey
