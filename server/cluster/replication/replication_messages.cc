#include "server/cluster/replication/replication_messages.h"

#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

struct AppendHeader {
  uint32_t shard = 0;
  uint32_t groups = 0;
  uint64_t term = 0;
  ReplicaName from;
  ReplicaName to;
  uint64_t commit_point = 0;
  uint64_t discard_to = 0;
};
static_assert(sizeof(AppendHeader) == 64);

struct GroupHead {
  uint64_t first_lsn = 0;
  uint64_t last_lsn = 0;
  uint64_t term = 0;
  uint64_t bytes = 0;  // of the body, without the zeros behind it
};
static_assert(sizeof(GroupHead) == 32);

struct CopyHeader {
  uint32_t shard = 0;
  uint32_t kind = 0;
  uint64_t term = 0;
  ReplicaName joiner;
  uint64_t lsn = 0;
};
static_assert(sizeof(CopyHeader) == 40);

template <typename Struct>
void Put(std::string& text, const Struct& value) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename Struct>
bool Take(absl::string_view& bytes, Struct& value) {
  if (bytes.size() < sizeof(value)) return false;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return true;
}

uint64_t Padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

template <typename... Parts>
absl::Status Malformed(absl::string_view message, const Parts&... parts) {
  return absl::DataLossError(
      absl::StrCat(message, ": ", parts..., "; do the servers of this cluster have one version?"));
}

absl::Status CheckNames(absl::string_view message, const ReplicaName& from, const ReplicaName& to) {
  if (from.incarnation == 0 || to.incarnation == 0)
    return Malformed(message, "a replica without name");
  return absl::OkStatus();
}

// Takes the next group, which has to begin at `lsn`; 0: anywhere.
absl::Status TakeGroup(absl::string_view& bytes, uint64_t lsn, uint64_t term,
                       ReplicatedGroup& group) {
  GroupHead head;
  if (!Take(bytes, head)) return Malformed("an append", "a group is cut off");
  if (head.first_lsn == 0 || head.last_lsn < head.first_lsn)
    return Malformed("an append", "a group of the lsns ", head.first_lsn, " to ", head.last_lsn);
  if (lsn != 0 && head.first_lsn != lsn)
    return Malformed("an append", "lsn ", head.first_lsn, " instead of ", lsn);
  if (head.term == 0 || head.term > term)
    return Malformed("an append", "term ", term, " with a group of term ", head.term);
  if (head.bytes == 0 || head.bytes > kGroupBytesMax || Padded(head.bytes) > bytes.size())
    return Malformed("an append", "a group of ", head.bytes, " bytes");
  group = {head.first_lsn, head.last_lsn, head.term,
           std::make_shared<const std::string>(bytes.substr(0, head.bytes))};
  bytes.remove_prefix(Padded(head.bytes));
  return absl::OkStatus();
}

}  // namespace

std::string EncodeAppend(const Append& append) {
  std::string text;
  uint64_t size = sizeof(AppendHeader);
  for (const ReplicatedGroup& group : append.groups)
    size += sizeof(GroupHead) + Padded(group.bytes());
  text.reserve(size);
  Put(text, AppendHeader{append.shard, static_cast<uint32_t>(append.groups.size()), append.term,
                         append.from, append.to, append.commit_point, append.discard_to});
  for (const ReplicatedGroup& group : append.groups) {
    Put(text, GroupHead{group.first_lsn, group.last_lsn, group.term, group.bytes()});
    text.append(*group.body);
    text.resize(Padded(text.size()));
  }
  return text;
}

std::string EncodeAck(const Ack& ack) {
  std::string text;
  Put(text, ack);
  return text;
}

std::string EncodeCopyMessage(const CopyMessage& message) {
  std::string text;
  text.reserve(sizeof(CopyHeader) + message.bytes.size());
  Put(text, CopyHeader{message.shard, static_cast<uint32_t>(message.kind), message.term,
                       message.joiner, message.lsn});
  text.append(message.bytes);
  return text;
}

absl::StatusOr<Append> DecodeAppend(absl::string_view bytes) {
  AppendHeader header;
  if (!Take(bytes, header)) return Malformed("an append", "the header is cut off");
  if (header.term == 0) return Malformed("an append", "it has no term");
  if (absl::Status status = CheckNames("an append", header.from, header.to); !status.ok())
    return status;
  if (header.groups > kGroupsInAppendMax)
    return Malformed("an append", "it has ", header.groups, " groups");
  if (header.discard_to > header.commit_point)
    return Malformed("an append", "applied up to ", header.discard_to, ", committed up to ",
                     header.commit_point);
  Append append{header.shard,        header.term,       header.from, header.to,
                header.commit_point, header.discard_to, {}};
  uint64_t lsn = 0;
  for (uint32_t i = 0; i < header.groups; ++i) {
    ReplicatedGroup group;
    if (absl::Status status = TakeGroup(bytes, lsn, header.term, group); !status.ok())
      return status;
    lsn = group.last_lsn + 1;
    append.groups.push_back(std::move(group));
  }
  if (!bytes.empty()) return Malformed("an append", bytes.size(), " bytes follow the last group");
  return append;
}

absl::StatusOr<Ack> DecodeAck(absl::string_view bytes) {
  Ack ack;
  if (!Take(bytes, ack) || !bytes.empty())
    return Malformed("an acknowledgement", "its length is wrong");
  if (ack.code > AckCode::kNoRoom)
    return Malformed("an acknowledgement", "its code is ", static_cast<uint32_t>(ack.code));
  if (absl::Status status = CheckNames("an acknowledgement", ack.from, ack.to); !status.ok())
    return status;
  if (ack.applied > ack.confirmed && ack.code == AckCode::kConfirmed)
    return Malformed("an acknowledgement", "applied up to ", ack.applied, ", confirmed up to ",
                     ack.confirmed);
  return ack;
}

absl::StatusOr<CopyMessage> DecodeCopyMessage(absl::string_view bytes) {
  constexpr absl::string_view kMessage = "a message of a copy";
  CopyHeader header;
  if (!Take(bytes, header)) return Malformed(kMessage, "the header is cut off");
  if (header.kind > static_cast<uint32_t>(CopyKind::kRefused))
    return Malformed(kMessage, "its kind is ", header.kind);
  if (header.joiner.incarnation == 0 || header.joiner.life == 0)
    return Malformed(kMessage, "a replica without name");
  const auto kind = static_cast<CopyKind>(header.kind);
  if (bytes.size() > kCopyBytesMax || bytes.empty() == (kind == CopyKind::kChunk))
    return Malformed(kMessage, "kind ", header.kind, " with ", bytes.size(), " bytes");
  return CopyMessage{header.shard,  kind,       header.term,
                     header.joiner, header.lsn, std::string(bytes)};
}

}  // namespace osprey
