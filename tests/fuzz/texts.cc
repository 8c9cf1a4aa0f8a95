// What people and scripts write: addresses, sizes, numbers, times, flags, key files, package
// indexes, cursors. What is taken means what it says: written again it is taken again, and is the
// same.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/read/scans.h"
#include "gflags/gflags.h"
#include "rdma/address.h"
#include "rdma/authentication.h"
#include "server/config/config.h"
#include "server/program/flags.h"
#include "server/program/size_flag.h"
#include "server/requests/decimal_int.h"
#include "tests/fuzz/support/input.h"
#include "tools/cli/commands/run.h"
#include "tools/common/histogram.h"
#include "tools/quickstart.d/deb_index.h"

DEFINE_string(fuzz_text, "", "a text");
DEFINE_bool(fuzz_switch, false, "a switch");
DEFINE_uint64(fuzz_number, 0, "a number");
DEFINE_double(fuzz_ratio, 0, "a ratio");

namespace osprey {
namespace {

// The one file that inputs are written to.
const std::string& File() {
  static const std::string* const path = [] {
    const char* tmp = std::getenv("TMPDIR");
    auto* made =
        new std::string(absl::StrCat(tmp == nullptr ? "/tmp" : tmp, "/osprey-fuzz-XXXXXX"));
    const int fd = mkstemp(made->data());
    OSPREY_MUST(fd >= 0, "a file");
    close(fd);
    std::atexit([] { unlink(File().c_str()); });
    return made;
  }();
  return *path;
}

void Write(const std::string& bytes, mode_t mode) {
  const int fd = open(File().c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  OSPREY_MUST(fd >= 0 &&
                  write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
                  fchmod(fd, mode) == 0,
              "writing a file");
  close(fd);
}

// One line, however many the text has.
void MustBeOneLine(const absl::Status& status) {
  OSPREY_MUST(!absl::StrContains(status.message(), "\n") && !status.message().empty(),
              "an error of several lines, or of none");
}

void TakeAddressList(const std::string& text) {
  const absl::StatusOr<std::vector<std::string>> uris = rdma::ParseAddresses(text);
  if (!uris.ok()) return MustBeOneLine(uris.status());
  OSPREY_MUST(!uris->empty() && uris->size() <= rdma::kAddressesMax, "a list of no such length");
  for (const std::string& uri : *uris)
    OSPREY_MUST(rdma::ParseAddress(uri).ok(), "a list with an address that is none");
}

void TakeAddress(const std::string& text) {
  TakeAddressList(text);
  const absl::StatusOr<rdma::Address> address = rdma::ParseAddress(text);
  if (!address.ok()) return MustBeOneLine(address.status());
  const std::string again = address->ToString();
  const absl::StatusOr<rdma::Address> same = rdma::ParseAddress(again);
  OSPREY_MUST(same.ok() && same->ToString() == again && same->host == address->host &&
                  same->path == address->path && same->port == address->port,
              "an address that differs when written again");
}

void TakeSize(const std::string& text) {
  const absl::StatusOr<uint64_t> size = server::ParseSize(text);
  if (!size.ok()) return;
  const absl::StatusOr<uint64_t> same = server::ParseSize(server::FormatSize(*size));
  OSPREY_MUST(same.ok() && *same == *size, "a size that differs when written again");
}

void TakeNumber(const std::string& text, fuzz::Input& input) {
  const absl::optional<int64_t> number = server::ParseNumber(text);
  if (number.has_value()) OSPREY_MUST(absl::StrCat(*number) == text, "a number with two texts");
  const auto a = static_cast<int64_t>(input.Number()), b = static_cast<int64_t>(input.Number());
  int64_t sum = 0;
  const bool fits = !__builtin_add_overflow(a, b, &sum);
  const absl::optional<int64_t> ours = server::Sum(a, b);
  OSPREY_MUST(ours.has_value() == fits && (!fits || *ours == sum), "a wrong sum");
}

void TakeTtl(const std::string& text) {
  const absl::StatusOr<absl::Duration> ttl = ParseTtl("SECONDS ", text);
  OSPREY_MUST(!ttl.ok() || (*ttl > absl::ZeroDuration() && *ttl <= kTtlMax()),
              "a time out of range");
}

void TakeFlags(fuzz::Input& input) {
  constexpr const char* kWords[] = {"--fuzz-text",
                                    "--fuzz_text=",
                                    "-fuzz-text=a",
                                    "--fuzz-switch",
                                    "--nofuzz_switch",
                                    "--fuzz-switch=no",
                                    "--fuzz-number=",
                                    "--fuzz-ratio",
                                    "--",
                                    "-",
                                    "-5",
                                    "--help",
                                    "--unknown=1",
                                    "#"};
  std::vector<std::string> words;
  while (!input.empty() && words.size() < 16) {
    std::string word = input.Flag() ? kWords[input.Choice(std::size(kWords))] : "";
    if (input.Flag()) word += input.Text(20);
    // A file that may have no end is the user's own affair; ours is the one below.
    if (input.OneIn(8) || absl::StrContains(word, "flagfile"))
      word = absl::StrCat("--flagfile=", File());
    words.push_back(std::move(word));
  }
  const std::string text = absl::StrJoin(words, "\n");
  Write(text, 0600);
  gflags::FlagSaver saver;
  const absl::StatusOr<std::vector<std::string>> arguments = ParseFlags(words);
  if (!arguments.ok()) {
    OSPREY_MUST(absl::IsInvalidArgument(arguments.status()), "another error of flags");
  } else {
    OSPREY_MUST(arguments->size() <= words.size(), "arguments out of nothing");
  }
}

void TakeConfig(fuzz::Input& input) {
  server::FlagValues flags;
  constexpr const char* kListens[] = {"rdma://h:1", "shm:///s", "rdma://h,shm:///s",
                                      "rdma://h,rdma://h", ","};
  constexpr const char* kSizes[] = {"64MiB", "0", "1TiB", "16EiB", "1KiB", ""};
  constexpr const char* kModes[] = {"adaptive", "busy", "event", "none", "clock",
                                    "0666",     "0600", "8",     "-1"};
  flags.listen = input.Flag() ? kListens[input.Choice(5)] : input.Text(60);
  flags.memory = input.Flag() ? kSizes[input.Choice(6)] : input.Text(20);
  flags.value_max = input.Flag() ? "" : kSizes[input.Choice(6)];
  flags.poll = input.Flag() ? "adaptive" : kModes[input.Choice(9)];
  flags.evict = input.Flag() ? "none" : kModes[input.Choice(9)];
  flags.socket_mode = input.Flag() ? "0600" : kModes[input.Choice(9)];
  flags.connections_max = input.Flag() ? 1024 : static_cast<int64_t>(input.Number());
  flags.connections_per_address_max = input.Flag() ? 0 : static_cast<int64_t>(input.Number());
  flags.pollers = input.Flag() ? 1 : static_cast<int64_t>(input.Number());
  flags.huge_pages = input.Flag();
  if (input.OneIn(4)) {
    Write(std::string(32, 'k'), input.Flag() ? 0600 : 0644);
    flags.auth_key_file = File();
  }
  const absl::StatusOr<server::Config> config = server::MakeConfig(flags);
  if (!config.ok()) return MustBeOneLine(config.status());
  OSPREY_MUST(!config->listen.empty() && config->memory_bytes > 0 && config->pollers >= 1 &&
                  config->pollers <= 64 && config->connections_max >= 1 &&
                  config->value_bytes_max <= uint64_t{1} << 30,
              "a configuration that cannot be");
}

void TakeKeyFile(fuzz::Input& input) {
  constexpr mode_t kModes[] = {0600, 0600, 0400, 0640, 0604, 0000};
  const mode_t mode = kModes[input.Choice(6)];
  const size_t bytes = input.UpTo(5000);
  std::string key = input.Text(200);
  key.resize(bytes, 'k');
  if (input.Flag()) key += '\n';
  Write(key, mode);
  const absl::StatusOr<rdma::AuthKey::Pointer> read = rdma::AuthKey::FromFile(File());
  if (!read.ok()) return MustBeOneLine(read.status());
  OSPREY_MUST((mode & 077) == 0, "a key that others can read");
  OSPREY_MUST(
      (*read)->size() >= rdma::kAuthKeyBytesMin && (*read)->size() <= rdma::kAuthKeyBytesMax,
      "a key of such a length");
  OSPREY_MUST(key.compare(0, (*read)->size(), reinterpret_cast<const char*>((*read)->data()),
                          (*read)->size()) == 0,
              "another key than the file's");
}

void TakeStanzas(const std::string& text) {
  const absl::StatusOr<std::vector<Stanza>> stanzas = ParseStanzas(text);
  if (!stanzas.ok()) return MustBeOneLine(stanzas.status());
  for (const Stanza& stanza : *stanzas) {
    OSPREY_MUST(!stanza.key.empty() && stanza.value.data() >= text.data() &&
                    stanza.value.data() + stanza.value.size() <= text.data() + text.size(),
                "a stanza that is not in the index");
  }
}

void TakeCursor(const std::string& text) {
  const absl::StatusOr<client::ScanPlace> place = client::ScanPlace::Parse(text);
  if (!place.ok() || text.empty()) return;
  const absl::StatusOr<client::ScanPlace> same = client::ScanPlace::Parse(place->Text());
  OSPREY_MUST(same.ok() && same->Text() == place->Text(),
              "a cursor that differs when written again");
}

void TakeValue(const std::string& text, fuzz::Input& input) {
  std::istringstream in(text);
  Write(text, 0600);
  const std::string argument = input.Flag() ? "-" : absl::StrCat("@", File());
  CommandContext context;
  context.in = &in;
  const absl::StatusOr<std::string> value = ReadValue(context, argument);
  OSPREY_MUST(value.ok() && *value == text, "another value than was given");
}

void TakeHistogram(fuzz::Input& input) {
  std::vector<Histogram::Bucket> buckets;
  for (uint32_t count = input.Byte() % 16; count > 0; --count)
    buckets.push_back({input.Number(), input.Number()});
  const uint64_t min = input.Number(), max = input.Number();
  const uint64_t number = input.Number();
  double sum = 0;
  for (const Histogram::Bucket& bucket : buckets)
    sum += static_cast<double>(bucket.highest) * static_cast<double>(bucket.count);
  // (One that fits is not found by chance.)
  if (number > 0 && number < 128) sum = static_cast<double>(number);
  Histogram histogram;
  if (!histogram.Restore(buckets, min, max, sum)) {
    OSPREY_MUST(histogram.count() == 0 && histogram.Buckets().empty(), "half of a histogram");
    return;
  }
  Histogram again;
  OSPREY_MUST(
      again.Restore(histogram.Buckets(), histogram.min(), histogram.max(), histogram.sum()) &&
          again.count() == histogram.count(),
      "a histogram that is another one when kept again");
  for (const double quantile : {0.0, 0.5, 0.999, 1.0})
    OSPREY_MUST(histogram.ValueAt(quantile) <= histogram.max(), "a quantile above all values");
}

void One(fuzz::Input input) {
  enum {
    kAddress,
    kSize,
    kNumber,
    kTtl,
    kFlags,
    kConfig,
    kKeyFile,
    kStanzas,
    kCursor,
    kValue,
    kHistogram,
    kKinds
  };
  switch (input.Choice(kKinds)) {
    case kAddress:
      return TakeAddress(input.Rest());
    case kSize:
      return TakeSize(input.Rest());
    case kNumber: {
      const std::string text = input.Text(30);
      return TakeNumber(text, input);
    }
    case kTtl:
      return TakeTtl(input.Rest());
    case kFlags:
      return TakeFlags(input);
    case kConfig:
      return TakeConfig(input);
    case kKeyFile:
      return TakeKeyFile(input);
    case kStanzas:
      return TakeStanzas(input.Rest());
    case kCursor:
      return TakeCursor(input.Rest());
    case kHistogram:
      return TakeHistogram(input);
    case kValue: {
      const std::string text = input.Text(300);
      return TakeValue(text, input);
    }
  }
}

}  // namespace
}  // namespace osprey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::One(osprey::fuzz::Input(data, size));
  return 0;
}
