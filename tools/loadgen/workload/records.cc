#include "tools/loadgen/workload/records.h"

#include <algorithm>
#include <cstring>

#include "xxhash.h"

namespace osprey::loadgen {
namespace {

constexpr size_t kNoiseBytes = 1 << 16;
constexpr size_t kCheckBytes = 8;

void Store64(char* to, uint64_t value) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<char>(value >> (8 * i));
}

uint64_t Load64(const char* from) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  return value;
}

uint64_t HashOf(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// Fills a value that is too short for a head.
void FillShort(absl::string_view key, char* to, size_t bytes) {
  char stream[kRecordHeadBytes];
  uint64_t state = HashOf(key);
  for (size_t i = 0; i < kRecordHeadBytes; i += 8) Store64(stream + i, state = Mix64(state));
  std::memcpy(to, stream, bytes);
}

}  // namespace

RecordMaker::RecordMaker(const Workload& workload, uint64_t serial, uint64_t seed)
    : workload_(workload),
      serial_(serial),
      random_(seed),
      field_lengths_(workload.field_bytes -
                     std::min(workload.field_bytes, workload.field_bytes_min) + 1),
      noise_(2 * kNoiseBytes),
      value_(kRecordHeadBytes) {
  for (size_t i = 0; i < noise_.size(); i += 8) Store64(&noise_[i], random_.Next());
}

uint64_t RecordMaker::NextLength() {
  if (workload_.sizes == Sizes::kEtc) return etc::ValueBytes(random_);
  if (workload_.field_lengths == Lengths::kConstant) return workload_.value_bytes_max();
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < workload_.field_count; ++i) {
    bytes += workload_.field_bytes_min + (workload_.field_lengths == Lengths::kZipfian
                                              ? field_lengths_.Next(random_)
                                              : random_.Below(field_lengths_.items()));
  }
  return bytes;
}

void RecordMaker::FillRandom(char* to, size_t bytes) {
  while (bytes > 0) {
    const size_t piece = std::min(bytes, kNoiseBytes);
    std::memcpy(to, &noise_[random_.Below(kNoiseBytes)], piece);
    to += piece;
    bytes -= piece;
  }
}

void RecordMaker::Seal(absl::string_view key, char* value, size_t bytes) {
  if (bytes < kRecordHeadBytes) {
    FillShort(key, value, bytes);
    return;
  }
  Store64(value + 8, serial_++);
  Store64(value + 16, HashOf(key));
  Store64(value, HashOf({value + kCheckBytes, bytes - kCheckBytes}));
}

absl::string_view RecordMaker::Make(absl::string_view key) {
  const uint64_t bytes = NextLength();
  if (value_.size() < bytes) value_.resize(bytes);
  if (bytes > kRecordHeadBytes)
    FillRandom(value_.data() + kRecordHeadBytes, bytes - kRecordHeadBytes);
  Seal(key, value_.data(), bytes);
  return {value_.data(), bytes};
}

void RecordMaker::ChangeField(absl::string_view key, std::string& value) {
  const uint64_t field = random_.Below(workload_.field_count);
  // Multiplied first: equal shares for any length. Both are bounded, so the product fits.
  const size_t begin = value.size() * field / workload_.field_count;
  const size_t end = value.size() * (field + 1) / workload_.field_count;
  FillRandom(value.data() + begin, end - begin);
  Seal(key, value.data(), value.size());
}

bool IsRecordOf(absl::string_view key, absl::string_view value) {
  if (value.size() < kRecordHeadBytes) {
    char expected[kRecordHeadBytes];
    FillShort(key, expected, value.size());
    return std::memcmp(expected, value.data(), value.size()) == 0;
  }
  return Load64(value.data() + 16) == HashOf(key) &&
         Load64(value.data()) == HashOf(value.substr(kCheckBytes));
}

}  // namespace osprey::loadgen
