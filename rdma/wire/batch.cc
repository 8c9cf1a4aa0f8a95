#include "rdma/wire/batch.h"

#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rdma/wire/checks.h"

namespace osprey::rdma {
namespace {

absl::Status BadBatch(absl::string_view field, uint64_t value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed batch: ", field, " is ", value, ", expected ", expected));
}

}  // namespace

absl::Status ParseBatch(FrameBytes frame, std::vector<FrameBytes>& frames) {
  frames.clear();
  FrameHeader batch;
  std::memcpy(&batch, frame.data(), sizeof(batch));
  FrameBytes rest = frame.subspan(sizeof(batch));
  if (rest.empty()) return BadBatch("length", frame.size(), "room for a frame");
  while (!rest.empty()) {
    if (frames.size() == kBatchFramesMax)
      return BadBatch("frames", frames.size() + 1, absl::StrCat("at most ", kBatchFramesMax));
    if (rest.size() < sizeof(FrameHeader))
      return BadBatch("bytes left", rest.size(), "0, or those of a frame");
    uint32_t length = 0;
    std::memcpy(&length, rest.data() + offsetof(FrameHeader, length), sizeof(length));
    if (length < sizeof(FrameHeader) || length > rest.size()) {
      return BadBatch("length of a frame", length,
                      absl::StrCat(sizeof(FrameHeader), " to ", rest.size()));
    }
    const FrameBytes inner = rest.first(length);
    if (!CheckHeaderIn<IsCorrect>(inner)) return CheckHeader(inner);
    const FrameHeader header = HeaderOf(inner);
    // Only requests and replies have a sequence.
    const bool unanswered = header.opcode == static_cast<uint8_t>(Opcode::kHints) ||
                            header.opcode == static_cast<uint8_t>(Opcode::kReport);
    if (header.sequence == 0 && !unanswered)
      return BadBatch("opcode", header.opcode,
                      "a request's, a reply's, or that of hints or a report");
    if (header.session != batch.session)
      return BadBatch("session", header.session, absl::StrCat("the batch's, ", batch.session));
    frames.push_back(inner);
    rest.remove_prefix(length);
  }
  return absl::OkStatus();
}

FrameBatch::FrameBatch(size_t bytes_max) : bytes_max_(bytes_max), bytes_(sizeof(FrameHeader)) {
  bytes_.reserve(bytes_max + sizeof(FrameHeader));
}

bool FrameBatch::Fits(size_t frame_bytes) const {
  if (frames_ == 0) return frame_bytes <= bytes_max_;
  return frames_ < kBatchFramesMax && bytes_.size() <= bytes_max_ &&
         frame_bytes <= bytes_max_ - bytes_.size();
}

void FrameBatch::Append(absl::Span<const FrameBytes> pieces) {
  size_t bytes = 0;
  for (FrameBytes piece : pieces) bytes += piece.size();
  assert(bytes >= sizeof(FrameHeader) && Fits(bytes));
  for (FrameBytes piece : pieces) bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  ++frames_;
}

FrameBytes FrameBatch::Finish(uint64_t session) {
  assert(frames_ > 0);
  const FrameBytes all(bytes_);
  if (frames_ == 1) return all.subspan(sizeof(FrameHeader));
  EmptyMessage batch(Opcode::kBatch, session, 0);
  batch.header.length = static_cast<uint32_t>(bytes_.size());
  std::memcpy(bytes_.data(), &batch.header, sizeof(batch.header));
  return all;
}

void FrameBatch::Clear() {
  bytes_.resize(sizeof(FrameHeader));
  frames_ = 0;
}

}  // namespace osprey::rdma
