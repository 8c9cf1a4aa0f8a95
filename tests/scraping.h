// Looks through a server's metrics door as Prometheus does, and more strictly.

#ifndef OSPREY_TESTS_SCRAPING_H_
#define OSPREY_TESTS_SCRAPING_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey {

// --- HTTP

struct HttpAnswer {
  int status = 0;  // 0: none that makes sense came before the connection was closed
  std::string head;
  std::string body;
};

// Sends `request` as it stands to 127.0.0.1:`port`, and reads until the other side closes. Errors:
// UNAVAILABLE: nobody listens there; DEADLINE_EXCEEDED.
absl::StatusOr<HttpAnswer> AskHttp(uint16_t port, absl::string_view request,
                                   absl::Duration timeout = absl::Seconds(30));
absl::StatusOr<HttpAnswer> GetHttp(uint16_t port, absl::string_view path);

// A connection that says nothing but `beginning`, while this lives.
class SilentPeer {
 public:
  SilentPeer(uint16_t port, absl::string_view beginning);
  ~SilentPeer();
  SilentPeer(SilentPeer&& other) noexcept;

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
  std::map<std::string, double> samples;  // by name and labels, as they stand in the text

  // The sample of that name and those labels; NaN if there is none.
  double Of(const std::string& sample) const;
};

// Errors: INVALID_ARGUMENT: what is wrong in which line. Wrong is also what parsers bear and people
// do not: a metric without HELP or TYPE, a sample twice, a counter whose name does not end in
// _total or that is negative, a histogram whose buckets do not grow or do not end in +Inf with its
// count.
absl::StatusOr<Scrape> ParseScrape(absl::string_view text);

}  // namespace osprey

#endif  // OSPREY_TESTS_SCRAPING_H_
