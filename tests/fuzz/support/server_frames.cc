#include "tests/fuzz/support/server_frames.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "index/writer/table.h"
#include "tests/fuzz/support/frame_bytes.h"

namespace osprey::server {

using fuzz::BytesOf;
using fuzz::Joined;
using rdma::Opcode;

const std::vector<std::string>& HostileFrames::MeetingKeys() {
  static const auto* const keys = [] {
    auto* found = new std::vector<std::string>;
    for (int i = 0; found->size() < 64; ++i) {
      std::string key = absl::StrCat("meet", i);
      const index::KeyHash hash = index::HashKey(key, kHashSeed);
      if (hash.home() == 7 && hash.directory_index(3) == 5) found->push_back(std::move(key));
    }
    return found;
  }();
  return *keys;
}

std::string HostileFrames::AnyKey() {
  constexpr const char* kKeys[] = {"a", "b", "planet", "mine",
                                   "a key that is too long for a line of 128 bytes"};
  if (input_.OneIn(16)) return std::string(input_.UpTo(rdma::kKeyBytesMax), 'k');
  if (input_.OneIn(8)) return MeetingKeys()[input_.Byte() % MeetingKeys().size()];
  if (input_.OneIn(4)) return absl::StrCat("key", input_.Byte());
  return kKeys[input_.Choice(5)];
}

std::string HostileFrames::AnyValue() {
  constexpr size_t kSizes[] = {0, 1, 8, 40, 100, 1000, 4000, 7900};
  if (input_.OneIn(4)) return input_.Text(40);
  return std::string(kSizes[input_.Choice(8)], '7');
}

uint64_t HostileFrames::NextSequence(Peer& peer) {
  if (!input_.OneIn(8)) return ++peer.sequence_;
  switch (input_.Choice(4)) {
    case 0:
      return peer.sequence_;  // once more
    case 1:
      return peer.sequence_ - input_.Byte();
    case 2:
      return peer.sequence_ += input_.Byte() * uint64_t{3};
    default:
      return input_.Number();
  }
}

template <typename Body>
std::string HostileFrames::Request(Peer& peer, Opcode opcode, const Body& body,
                                   absl::string_view payload, bool numbered) {
  const uint64_t sequence = numbered ? NextSequence(peer) : 0;
  return Joined({rdma::Message<Body>(opcode, peer.session_, sequence, body, payload.size()).bytes(),
                 BytesOf(payload)});
}

template <typename Body>
void HostileFrames::AnyCondition(Body& body) {
  if (!input_.OneIn(8)) return;
  body.condition = input_.Choice(3);
  if (body.condition == 2) body.condition_version = input_.Number();
}

std::string HostileFrames::RendezvousFrame(Peer& peer, const std::string& key) {
  constexpr uint64_t kSizes[] = {
      1, 9000, 60000, 70000, kValueBytesMax, kValueBytesMax + 1, kSourceBytes};
  rdma::PutBody body;
  body.rendezvous = 1;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = kSizes[input_.Choice(7)];
  body.source = {peer.source_remote_.address, body.value_length, peer.source_remote_.key, 0};
  // Hashing all of it in each input would take the most of its time.
  if (body.value_length <= 70000)
    body.value_hash = XXH3_64bits(peer.source_->data(), body.value_length);
  if (input_.OneIn(8)) {
    switch (input_.Choice(4)) {
      case 0:
        body.source.address += input_.Number();
        break;
      case 1:
        body.source.key = static_cast<uint32_t>(input_.Number());
        break;
      case 2:
        body.value_hash ^= 1;
        break;
      case 3:
        body.value_length = body.source.length = input_.Number();
        break;
    }
  }
  AnyCondition(body);
  if (input_.OneIn(8)) body.ttl_ns = input_.Number();
  return Request(peer, Opcode::kPut, body, key);
}

std::string HostileFrames::RequestFrame(Peer& peer) {
  const std::string key = AnyKey();
  const std::string value = AnyValue();
  enum {
    kPut,
    kPut2,
    kRendezvous,
    kDelete,
    kIncrement,
    kAppend,
    kGet,
    kFlush,
    kExpire,
    kTouch,
    kHints,
    kPing,
    kStats,
    kDisconnectNotice,
    kReport,
    kKinds
  };
  switch (input_.Choice(kKinds)) {
    case kPut:
    case kPut2: {
      rdma::PutBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      body.value_length = value.size();
      AnyCondition(body);
      if (input_.OneIn(4)) body.ttl_ns = input_.Number();
      return Request(peer, Opcode::kPut, body, key + value);
    }
    case kRendezvous:
      return RendezvousFrame(peer, key);
    case kDelete: {
      rdma::DeleteBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      AnyCondition(body);
      return Request(peer, Opcode::kDelete, body, key);
    }
    case kIncrement: {
      rdma::IncrementBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      body.by = static_cast<int64_t>(input_.Number());
      AnyCondition(body);
      return Request(peer, Opcode::kIncrement, body, key);
    }
    case kAppend: {
      rdma::AppendBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      body.value_length = value.size();
      AnyCondition(body);
      return Request(peer, Opcode::kAppend, body, key + value);
    }
    case kGet: {
      rdma::GetBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      body.want_value = input_.OneIn(4) ? 0 : 1;
      return Request(peer, Opcode::kGet, body, key);
    }
    case kFlush: {
      rdma::FlushBody body;
      if (input_.Flag()) body = {input_.Number(), input_.Number()};
      return Request(peer, Opcode::kFlush, body, "");
    }
    case kExpire: {
      rdma::ExpireBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      body.ttl_ns = input_.Number();
      AnyCondition(body);
      return Request(peer, Opcode::kExpire, body, key);
    }
    case kTouch: {
      rdma::TouchBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      return Request(peer, Opcode::kTouch, body, key);
    }
    case kHints: {
      rdma::HintsBody body;
      std::string words;
      body.count = 1 + input_.Byte() % (input_.OneIn(8) ? 256 : 4);
      for (uint32_t i = 0; i < body.count; ++i) {
        const uint64_t word = input_.Flag() ? input_.Any<uint64_t>() : AnyHint();
        words.append(reinterpret_cast<const char*>(&word), sizeof(word));
      }
      return Request(peer, Opcode::kHints, body, words, input_.OneIn(32));
    }
    case kReport:
      return Request(peer, Opcode::kReport, input_.Any<rdma::ReportBody>(), "", input_.OneIn(32));
    case kDisconnectNotice:
      if (input_.OneIn(4))
        return Joined({rdma::EmptyMessage(Opcode::kDisconnectNotice, peer.session_, 0).bytes()});
      [[fallthrough]];
    case kPing:
    case kStats:
      break;
  }
  const Opcode opcode = input_.OneIn(4)   ? Opcode::kStats
                        : input_.OneIn(4) ? Opcode::kServers
                                          : Opcode::kPing;
  return Joined({rdma::EmptyMessage(opcode, peer.session_, NextSequence(peer)).bytes()});
}

uint64_t HostileFrames::AnyHint() {
  const uint64_t at = input_.Any<uint16_t>() * uint64_t{8} % region_bytes_;
  const uint64_t offset = input_.Flag() ? at : index::UnitsOffset(region_bytes_) + at / 128 * 128;
  const index::KeyHash hash = index::HashKey("a", kHashSeed);
  return uint64_t{input_.Flag() ? 1u : 3u} << 62 | uint64_t{hash.fingerprint()} << 46 |
         uint64_t{input_.Byte() % 8u} << index::kOffsetBits | offset / 8;
}

std::string HostileFrames::BatchFrame(Peer& peer) {
  std::string frames;
  // Short ones may be many.
  uint32_t count = 1 + input_.Byte() % (input_.OneIn(4) ? 140 : 8);
  const bool same = input_.OneIn(4);
  std::string frame = RequestFrame(peer);
  for (; count > 0 && frames.size() + frame.size() < 8000; --count) {
    frames += frame;
    if (!same || input_.empty()) frame = RequestFrame(peer);
  }
  rdma::EmptyMessage batch(Opcode::kBatch, peer.session_, 0);
  batch.header.length += static_cast<uint32_t>(frames.size());
  return Joined({batch.bytes(), BytesOf(frames)});
}

std::string HostileFrames::Spoiled(std::string frame) {
  if (!input_.OneIn(8) || frame.empty()) return frame;
  for (uint32_t changes = 1 + input_.Byte() % 3; changes > 0; --changes)
    frame[input_.Any<uint16_t>() % std::min<size_t>(frame.size(), 128)] =
        static_cast<char>(input_.Byte());
  if (input_.OneIn(4)) frame.resize(1 + input_.Any<uint16_t>() % 8192);
  if (input_.Flag() && frame.size() >= sizeof(rdma::FrameHeader)) {
    const auto length = static_cast<uint32_t>(frame.size());
    std::memcpy(frame.data() + offsetof(rdma::FrameHeader, length), &length, sizeof(length));
  }
  return frame;
}

}  // namespace osprey::server
