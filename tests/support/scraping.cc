#include "tests/support/scraping.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace osprey {
namespace {

// -1: no server listens.
int Dial(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// The server may close the connection of a client that sends too much, before all of it is sent.
void SendAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

HttpAnswer Split(absl::string_view text) {
  HttpAnswer answer;
  const size_t end = text.find("\r\n\r\n");
  if (end == absl::string_view::npos || !absl::StartsWith(text, "HTTP/1.1 ")) return answer;
  answer.head = std::string(text.substr(0, end));
  answer.body = std::string(text.substr(end + 4));
  if (!absl::SimpleAtoi(text.substr(9, 3), &answer.status)) answer.status = 0;
  return answer;
}

}  // namespace

absl::StatusOr<HttpAnswer> AskHttp(uint16_t port, absl::string_view request,
                                   absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  const int fd = Dial(port);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("no server listens at port ", port));
  SendAll(fd, request);
  std::string text;
  while (true) {
    pollfd wait = {fd, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(end - absl::Now());
    if (left_ms <= 0 || poll(&wait, 1, static_cast<int>(left_ms)) <= 0) {
      close(fd);
      return absl::DeadlineExceededError("no whole answer came");
    }
    char bytes[4096];
    const ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
    if (count <= 0) break;  // closed, or reset
    text.append(bytes, static_cast<size_t>(count));
  }
  close(fd);
  return Split(text);
}

absl::StatusOr<HttpAnswer> GetHttp(uint16_t port, absl::string_view path) {
  return AskHttp(port, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

SilentPeer::SilentPeer(uint16_t port, absl::string_view beginning) : fd_(Dial(port)) {
  if (fd_ >= 0) SendAll(fd_, beginning);
}

SilentPeer::~SilentPeer() {
  if (fd_ >= 0) close(fd_);
}

SilentPeer::SilentPeer(SilentPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

SilentPeer& SilentPeer::operator=(SilentPeer&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

bool SilentPeer::Say(absl::string_view more) {
  char byte = 0;
  if (recv(fd_, &byte, 1, MSG_DONTWAIT) == 0) return false;
  return send(fd_, more.data(), more.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(more.size());
}

// --- The text format

namespace {

absl::Status Wrong(absl::string_view line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("'", line, "': ", what));
}

bool IsName(absl::string_view name) {
  const auto is_letter = [](char c) { return absl::ascii_isalpha(c) || c == '_' || c == ':'; };
  if (name.empty() || !is_letter(name[0])) return false;
  for (char c : name) {
    if (!is_letter(c) && !absl::ascii_isdigit(c)) return false;
  }
  return true;
}

// "", or {name="value",…} with simple values.
bool AreLabels(absl::string_view text) {
  if (text.empty()) return true;
  if (!absl::ConsumePrefix(&text, "{") || !absl::ConsumeSuffix(&text, "}")) return false;
  for (absl::string_view pair : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    absl::string_view value = parts.second;
    if (!IsName(parts.first) || !absl::ConsumePrefix(&value, "\"") ||
        !absl::ConsumeSuffix(&value, "\"") || value.find_first_of("\"\\\n") != value.npos) {
      return false;
    }
  }
  return true;
}

class Parser {
 public:
  absl::Status Take(absl::string_view line) {
    if (absl::ConsumePrefix(&line, "# HELP ")) return TakeHelp(line);
    if (absl::ConsumePrefix(&line, "# TYPE ")) return TakeType(line);
    if (absl::StartsWith(line, "#")) return Wrong(line, "a comment");
    return TakeSample(line);
  }
  absl::StatusOr<Scrape> Finish() {
    for (const auto& [name, family] : scrape_.families) {
      if (family.type.empty()) return Wrong(name, "it has no TYPE");
      if (family.help.empty()) return Wrong(name, "it has no HELP");
      if (!seen_.contains(name)) return Wrong(name, "it has no sample");
    }
    for (const auto& [name, buckets] : buckets_) {
      const auto& last = buckets.back();
      if (last.first != std::numeric_limits<double>::infinity())
        return Wrong(name, "its last bucket is not +Inf");
      if (last.second != scrape_.Of(name + "_count"))
        return Wrong(name, "its last bucket is not its count");
      if (std::isnan(scrape_.Of(name + "_sum"))) return Wrong(name, "it has no sum");
    }
    return std::move(scrape_);
  }

 private:
  absl::Status TakeHelp(absl::string_view line) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (!IsName(parts.first)) return Wrong(line, "no name");
    Scrape::Family& family = scrape_.families[parts.first];
    if (!family.help.empty()) return Wrong(line, "a second HELP");
    family.help = parts.second;
    return absl::OkStatus();
  }

  absl::Status TakeType(absl::string_view line) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    Scrape::Family& family = scrape_.families[parts.first];
    if (!family.type.empty()) return Wrong(line, "a second TYPE");
    family.type = parts.second;
    if (family.type != "counter" && family.type != "gauge" && family.type != "histogram")
      return Wrong(line, "an unknown type");
    if ((family.type == "counter") != absl::EndsWith(parts.first, "_total"))
      return Wrong(line, "a counter's name ends in _total, and no other's");
    current_ = parts.first;
    return absl::OkStatus();
  }

  absl::Status TakeSample(absl::string_view line) {
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == line.npos || !absl::SimpleAtod(line.substr(space + 1), &value))
      return Wrong(line, "no number at its end");
    const std::string sample(line.substr(0, space));
    const std::string name = sample.substr(0, sample.find('{'));
    if (!IsName(name) || !AreLabels(absl::string_view(sample).substr(name.size())))
      return Wrong(line, "no name, or no labels");
    if (!scrape_.samples.emplace(sample, value).second) return Wrong(line, "it was there before");
    const std::string type = scrape_.families[current_].type;
    if (type == "histogram") return TakePartOfHistogram(line, name, sample, value);
    if (name != current_) return Wrong(line, "it stands under another metric's TYPE");
    if (type == "counter" && value < 0) return Wrong(line, "a counter below 0");
    seen_.insert(current_);
    return absl::OkStatus();
  }

  absl::Status TakePartOfHistogram(absl::string_view line, const std::string& name,
                                   const std::string& sample, double value) {
    seen_.insert(current_);
    if (name == current_ + "_sum" || name == current_ + "_count") return absl::OkStatus();
    absl::string_view bound = sample;
    double le = 0;
    if (!absl::ConsumePrefix(&bound, current_ + "_bucket{le=\"") ||
        !absl::ConsumeSuffix(&bound, "\"}") || !absl::SimpleAtod(bound, &le)) {
      return Wrong(line, "no part of a histogram");
    }
    std::vector<std::pair<double, double>>& buckets = buckets_[current_];
    if (!buckets.empty() && (le <= buckets.back().first || value < buckets.back().second))
      return Wrong(line, "buckets must grow");
    buckets.emplace_back(le, value);
    return absl::OkStatus();
  }

  Scrape scrape_;
  std::string current_;
  std::set<std::string> seen_;
  std::map<std::string, std::vector<std::pair<double, double>>> buckets_;  // {bound, count}
};

}  // namespace

double Scrape::Of(const std::string& sample) const {
  const auto found = samples.find(sample);
  return found == samples.end() ? std::nan("") : found->second;
}

absl::StatusOr<Scrape> ParseScrape(absl::string_view text) {
  if (!absl::ConsumeSuffix(&text, "\n")) return Wrong(text, "its last line does not end");
  Parser parser;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::Status status = parser.Take(line); !status.ok()) return status;
  }
  return parser.Finish();
}

}  // namespace osprey
