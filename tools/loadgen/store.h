// The driver's interface to a store: start operations and receive their results. There are three
// implementations: an Osprey client, a store that does nothing (to measure the cost of the load
// itself), and tests in virtual time.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_LOADGEN_STORE_H_
#define OSPREY_TOOLS_LOADGEN_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/client.h"

namespace osprey::loadgen {

// Nanoseconds that never decrease.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() = 0;
};

// The machine's monotonic clock.
Clock& SystemClock();

// Identifies an operation of the driver.
using Token = uint32_t;

class StoreListener {
 public:
  virtual ~StoreListener() = default;
  // The listener may change `value` or move it away.
  virtual void ReadEnded(Token token, absl::StatusOr<Value>& value) = 0;
  virtual void WriteEnded(Token token, const absl::StatusOr<uint64_t>& version) = 0;
  virtual void ScanEnded(Token token, const absl::StatusOr<ScanPage>& page) = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // Each: OK: the listener is called once, in a later Poll or Wait. Not OK: the operation was not
  // started. Key, value and cursor are copied.
  virtual absl::Status StartRead(absl::string_view key, Token token) = 0;
  virtual absl::Status StartWrite(absl::string_view key, absl::string_view value, Token token) = 0;
  virtual absl::Status StartScan(absl::string_view cursor, uint64_t limit, Token token) = 0;

  // Makes progress, and calls the listener for ended operations.
  virtual void Poll() = 0;
  // Polls until an operation ended or `timeout_ns` passed. With nothing in flight it may return
  // earlier.
  virtual void Wait(int64_t timeout_ns) = 0;

  virtual Counters counters() const = 0;
  // "transport=… device=… server=…".
  virtual std::string Describe() const = 0;

  // REQUIRES: before the first Start. The listener must outlive the operations.
  void set_listener(StoreListener* listener) { listener_ = listener; }

 protected:
  StoreListener* listener_ = nullptr;
};

// Connects. REQUIRES: options.operations_max is at least the driver's depth. Errors:
// Client::Connect's.
absl::StatusOr<std::unique_ptr<Store>> ConnectStore(absl::string_view uri, const Options& options);

// A store in which every operation ends at the next Poll, and every key is present with an empty
// value.
std::unique_ptr<Store> NullStore();

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_STORE_H_
