// The files of `kvcli export` and `kvcli import`: keys, values and times to live, in one of three
// formats.
//
//   jsonl   an object a line: {"key":"planet","value":"saturn","ttl":59.5}. Bytes that are not text
//           are in base64, and "key_encoding" or "value_encoding" says "base64". A line with other
//           names, a name twice, or objects and lists in it is no record
//   csv     RFC 4180: fields in quotes where they have commas, quotes or line ends in them. The first
//           line names the columns: key, value, ttl, key_encoding, value_encoding; of a file to be
//           read key and value are enough, in any order
//   binary  any bytes as they are, with a checksum a record; below
//
// `ttl` is what was left to live when it was exported, in seconds; none: until it is deleted.
// Text here is what may go to a terminal (server/program/printable.h), tabs and line ends besides.
//
// The binary format; all numbers are little-endian:
//
//   header  16 B  "OSPREYKV", version (u32, 1), 0 (u32)
//   record  32 B  key length (u32, 1 … 4096), 0 (u32), value length (u64), ttl in µs (u64, 0: none),
//                 checksum (u64): XXH3-64 over the number of the record in the file (u64, from 0),
//                 the 24 bytes before the checksum, the key and the value; then key and value
//   end     32 B  as a record with key length 0, and as value length the number of records
//
// So a file that is cut anywhere, or whose records were changed, swapped or left out, is noticed.
//
// Thread rule: one thread each.

#ifndef OSPREY_TOOLS_BULK_FORMAT_H_
#define OSPREY_TOOLS_BULK_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey {

struct BulkRecord {
  std::string key;
  std::string value;
  absl::Duration ttl = absl::InfiniteDuration();
};

enum class BulkFormat { kJsonl, kCsv, kBinary };

// Longer values are for the binary format alone: as text they would be lines of unreasonable
// length.
inline constexpr uint64_t kBulkTextValueBytesMax = 64 << 20;
// A line of jsonl, or a record of csv. Escaping at most doubles what is text.
inline constexpr uint64_t kBulkTextRecordBytesMax = 2 * kBulkTextValueBytesMax + (64 << 10);
// No server takes more.
inline constexpr uint64_t kBulkKeyBytesMax = 4096;
inline constexpr uint64_t kBulkValueBytesMax = uint64_t{1} << 30;
inline constexpr char kBulkMagic[] = "OSPREYKV";

// "csv", "jsonl" or "binary"; "": as `path` ends in any case (.jsonl, .csv, .bin or .osprey), and
// jsonl where the file's name has no dot. Errors: INVALID_ARGUMENT: another name; another ending,
// with `name` empty; the ending of a compressed file, always.
absl::StatusOr<BulkFormat> BulkFormatOf(absl::string_view name, absl::string_view path);
absl::string_view NameOf(BulkFormat format);

// Makes bytes of records.
class BulkWriter {
 public:
  virtual ~BulkWriter() = default;
  // What stands before the first record.
  virtual void Begin(std::string& out) = 0;
  // Errors: OUT_OF_RANGE: a value that this format does not take; `out` is as it was.
  virtual absl::Status Append(const BulkRecord& record, std::string& out) = 0;
  virtual void End(std::string& out) = 0;
};
// `records` have been written already, to go on behind them.
std::unique_ptr<BulkWriter> NewBulkWriter(BulkFormat format, uint64_t records = 0);

// Bytes from anywhere, buffered.
class BulkInput {
 public:
  // Reads at most `bytes`; 0: the end.
  using Source = std::function<absl::StatusOr<size_t>(char* data, size_t bytes)>;

  explicit BulkInput(Source source);

  // The next byte, or -1: the end, or an error (status()). Peek leaves it there.
  int Next() { return Peek() < 0 ? -1 : static_cast<unsigned char>(buffer_[position_++]); }
  int Peek() {
    if (position_ == filled_) Fill();
    return position_ == filled_ ? -1 : static_cast<unsigned char>(buffer_[position_]);
  }
  // The first bytes, as far as they have come; before any other call.
  absl::string_view First();
  // Appends a line without its end, and takes that; stops at `bytes_max`. False: there was no more,
  // not even an empty line.
  bool Line(std::string& line, uint64_t bytes_max, bool& is_too_long);
  // Appends `bytes` to `to`. False: there are less.
  bool Exactly(uint64_t bytes, std::string& to);

  uint64_t offset() const { return offset_ + position_; }  // bytes taken
  // Why reading ended, if it was no end.
  const absl::Status& status() const { return status_; }

 private:
  void Fill();

  Source source_;
  std::string buffer_;
  size_t position_ = 0;
  size_t filled_ = 0;
  uint64_t offset_ = 0;  // of buffer_
  absl::Status status_;
};

class BulkReader {
 public:
  enum class Result {
    kRecord,
    kEnd,
    kBadRecord,  // this one is none; the next may be one
    kBroken,     // nothing behind this can be read
  };
  virtual ~BulkReader() = default;
  virtual Result Next(BulkRecord& record) = 0;
  // Where the last one began: "line 12", "record 3".
  virtual std::string place() const = 0;
  // Of kBadRecord and kBroken.
  const std::string& error() const { return error_; }

 protected:
  Result Bad(std::string error) { return error_ = std::move(error), Result::kBadRecord; }
  Result Broken(std::string error) { return error_ = std::move(error), Result::kBroken; }

 private:
  std::string error_;
};
// `input` must outlive it.
std::unique_ptr<BulkReader> NewBulkReader(BulkFormat format, BulkInput& input);

}  // namespace osprey

#endif  // OSPREY_TOOLS_BULK_FORMAT_H_
