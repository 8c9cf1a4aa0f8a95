#include "server/cluster/links/message_assembly.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

absl::Status BadPiece(absl::string_view field, uint64_t value, absl::string_view expected,
                      uint64_t bound) {
  return absl::InvalidArgumentError(absl::StrCat("the field ", field, " of a piece is ", value,
                                                 "; expected ", expected, " ", bound));
}

}  // namespace

absl::Status MessageAssembly::CheckPiece(const PieceHeader& piece, size_t bytes_left) const {
  for (const uint8_t byte : piece.reserved)
    if (byte != 0) return BadPiece("reserved", byte, "the value", 0);
  if (piece.message_bytes > kLinkMessageBytesMax)
    return BadPiece("message_bytes", piece.message_bytes, "at most", kLinkMessageBytesMax);
  if (under_way_ && piece.message_bytes != first_.message_bytes)
    return BadPiece("message_bytes", piece.message_bytes, "that of the message under way,",
                    first_.message_bytes);
  if (under_way_ && piece.kind != first_.kind)
    return BadPiece("kind", piece.kind, "that of the message under way,", first_.kind);
  if (piece.piece_bytes > bytes_left)
    return BadPiece("piece_bytes", piece.piece_bytes, "at most the bytes that follow,", bytes_left);
  const uint64_t missing = piece.message_bytes - (under_way_ ? body_.size() : 0);
  if (piece.piece_bytes > missing)
    return BadPiece("piece_bytes", piece.piece_bytes, "at most what the message lacks,", missing);
  // Else a message could go on for ever.
  if (piece.piece_bytes == 0 && missing > 0)
    return BadPiece("piece_bytes", 0, "a part of what the message lacks,", missing);
  return absl::OkStatus();
}

absl::Status MessageAssembly::Take(rdma::Bytes frame,
                                   absl::FunctionRef<void(uint8_t kind, std::string body)> take) {
  rdma::Bytes rest = frame.subspan(sizeof(LinkHeader));
  if (rest.empty()) return absl::InvalidArgumentError("a Data frame has no piece");
  while (!rest.empty()) {
    PieceHeader piece;
    if (rest.size() < sizeof(piece))
      return BadPiece("length", rest.size(), "at least", sizeof(piece));
    std::memcpy(&piece, rest.data(), sizeof(piece));
    rest.remove_prefix(sizeof(piece));
    if (absl::Status status = CheckPiece(piece, rest.size()); !status.ok()) return status;
    if (!under_way_) {
      under_way_ = true;
      first_ = piece;
      body_.reserve(piece.message_bytes);
    }
    body_.append(reinterpret_cast<const char*>(rest.data()), piece.piece_bytes);
    rest.remove_prefix(piece.piece_bytes);
    if (body_.size() < first_.message_bytes) continue;
    under_way_ = false;
    take(first_.kind, std::exchange(body_, {}));
  }
  return absl::OkStatus();
}

}  // namespace osprey
