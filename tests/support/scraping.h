// Scrapes a server's metrics as Prometheus does, with stricter checks.

#ifndef OSPREY_TESTS_SUPPORT_SCRAPING_H_
#define OSPREY_TESTS_SUPPORT_SCRAPING_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey {

// --- HTTP

struct HttpAnswer {
  int status = 0;  // 0: no valid answer came before the connection was closed
  std::string head;
  std::string body;
};

// Sends `request` unchanged to 127.0.0.1:`port`, and reads until the peer closes. Errors:
// UNAVAILABLE: connection refused; DEADLINE_EXCEEDED.
absl::StatusOr<HttpAnswer> AskHttp(uint16_t port, absl::string_view request,
                                   absl::Duration timeout = absl::Seconds(30));
absl::StatusOr<HttpAnswer> GetHttp(uint16_t port, absl::string_view path);

// A connection that sends `beginning`, and nothing else by itself, during its lifetime.
class SilentPeer {
 public:
  SilentPeer(uint16_t port, absl::string_view beginning);
  ~SilentPeer();
  SilentPeer(SilentPeer&& other) noexcept;
  SilentPeer& operator=(SilentPeer&& other) noexcept;

  // Sends some more. False: the other side has closed.
  bool Say(absl::string_view more);

 private:
  int fd_ = -1;
};

// --- Prometheus' text format, version 0.0.4

struct Scrape {
  struct Family {
    std::string type;
    std::string help;
  };
  std::map<std::string, Family> families;
  std::map<std::string, double> samples;  // by name and labels, as written in the text

  // The sample of that name and those labels; NaN if there is none.
  double Of(const std::string& sample) const;
};

// Errors: INVALID_ARGUMENT: the error and its line. It also rejects texts that parsers accept but
// people find wrong. These are a metric without HELP or TYPE, a duplicate sample, and a counter
// that is negative or whose name does not end in _total. A histogram's buckets must grow and end in
// +Inf with its count.
absl::StatusOr<Scrape> ParseScrape(absl::string_view text);

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_SCRAPING_H_
