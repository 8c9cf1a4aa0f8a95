#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/bulk/text.h"
#include "xxhash.h"

namespace osprey {
namespace {

constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t zero;
};
static_assert(sizeof(Header) == 16);

struct RecordHeader {
  uint32_t key_length;  // 0: the end
  uint32_t zero;
  uint64_t value_length;  // of the end: how many records there were
  uint64_t ttl_us;
  uint64_t checksum;
};
static_assert(sizeof(RecordHeader) == 32 && offsetof(RecordHeader, checksum) == 24);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as the rest of Osprey");

// A bulk file's checksum, made of pieces.
class Checksum {
 public:
  Checksum(uint64_t number, const RecordHeader& header) : state_(XXH3_createState()) {
    XXH3_64bits_reset(state_);
    XXH3_64bits_update(state_, &number, sizeof(number));
    XXH3_64bits_update(state_, &header, offsetof(RecordHeader, checksum));
  }
  ~Checksum() { XXH3_freeState(state_); }
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void Add(absl::string_view bytes) { XXH3_64bits_update(state_, bytes.data(), bytes.size()); }
  uint64_t value() const { return XXH3_64bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

uint64_t ChecksumOf(uint64_t number, const RecordHeader& header, absl::string_view key,
                    absl::string_view value) {
  Checksum checksum(number, header);
  checksum.Add(key);
  checksum.Add(value);
  return checksum.value();
}

class BinaryWriter final : public BulkWriter {
 public:
  explicit BinaryWriter(uint64_t records) : records_(records) {}
  void Begin(std::string& out) override {
    Header header = {};
    std::memcpy(header.magic, kBulkMagic, sizeof(header.magic));
    header.version = kVersion;
    out.append(reinterpret_cast<const char*>(&header), sizeof(header));
  }
  absl::Status Append(const BulkRecord& record, std::string& out) override {
    RecordHeader header = {};
    header.key_length = static_cast<uint32_t>(record.key.size());
    header.value_length = record.value.size();
    if (record.ttl != absl::InfiniteDuration())
      header.ttl_us =
          static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Microseconds(record.ttl), 1));
    header.checksum = ChecksumOf(records_++, header, record.key, record.value);
    out.append(reinterpret_cast<const char*>(&header), sizeof(header));
    absl::StrAppend(&out, record.key, record.value);
    return absl::OkStatus();
  }
  void End(std::string& out) override {
    RecordHeader header = {};
    header.value_length = records_;
    header.checksum = ChecksumOf(records_, header, "", "");
    out.append(reinterpret_cast<const char*>(&header), sizeof(header));
  }

 private:
  uint64_t records_;
};

class BinaryReader final : public BulkReader {
 public:
  explicit BinaryReader(BulkInput& input) : input_(input) {}

  Result Next(BulkRecord& record) override {
    if (ended_) return Result::kEnd;
    if (!has_header_) {
      has_header_ = true;
      Header header = {};
      if (!Take(header) || std::memcmp(header.magic, kBulkMagic, sizeof(header.magic)) != 0)
        return Failed("it does not begin as a binary export does");
      if (header.version != kVersion || header.zero != 0)
        return Broken(
            absl::StrCat("its version is ", header.version, ", and this kvcli reads ", kVersion));
    }
    RecordHeader header = {};
    if (!Take(header)) return Failed("the file is cut off: its end is missing");
    if (header.key_length == 0) return AtEnd(header);
    if (header.key_length > kBulkKeyBytesMax || header.value_length > kBulkValueBytesMax ||
        header.zero != 0)
      return Broken("its lengths cannot be: the file is damaged");
    record.key.clear();
    record.value.clear();
    if (!input_.Exactly(header.key_length, record.key) ||
        !input_.Exactly(header.value_length, record.value))
      return Failed("the file is cut off within it");
    if (header.checksum != ChecksumOf(records_, header, record.key, record.value))
      return Broken("its checksum is wrong: the file is damaged");
    ++records_;
    record.ttl = absl::InfiniteDuration();
    if (header.ttl_us != 0) {
      const auto micros = static_cast<int64_t>(std::min<uint64_t>(header.ttl_us, INT64_MAX));
      std::string error = DecodeBulkTtl(absl::Microseconds(micros), record.ttl);
      if (!error.empty()) return Bad(std::move(error));
    }
    return Result::kRecord;
  }
  std::string place() const override { return absl::StrCat("record ", records_); }

 private:
  template <typename T>
  bool Take(T& header) {
    std::string bytes;
    if (!input_.Exactly(sizeof(header), bytes)) return false;
    std::memcpy(&header, bytes.data(), sizeof(header));
    return true;
  }
  Result Failed(absl::string_view what) {
    return Broken(std::string(input_.status().ok() ? what : input_.status().message()));
  }
  Result AtEnd(const RecordHeader& header) {
    if (header.zero != 0 || header.ttl_us != 0 ||
        header.checksum != ChecksumOf(records_, header, "", ""))
      return Broken("the checksum of its end is wrong: the file is damaged");
    if (header.value_length != records_)
      return Broken(absl::StrCat("its end speaks of ", header.value_length, " records"));
    if (input_.Peek() >= 0) return Broken("something stands behind its end");
    ended_ = true;
    return Result::kEnd;
  }

  BulkInput& input_;
  bool has_header_ = false;
  bool ended_ = false;
  uint64_t records_ = 0;
};

}  // namespace

std::unique_ptr<BulkWriter> NewBinaryWriter(uint64_t records) {
  return std::make_unique<BinaryWriter>(records);
}
std::unique_ptr<BulkReader> NewBinaryReader(BulkInput& input) {
  return std::make_unique<BinaryReader>(input);
}

}  // namespace osprey
