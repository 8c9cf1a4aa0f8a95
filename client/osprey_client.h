// What stands behind osprey.h's clients: a Client, and how calls on it begin and end.

#ifndef OSPREY_CLIENT_OSPREY_CLIENT_H_
#define OSPREY_CLIENT_OSPREY_CLIENT_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client/client.h"
#include "client/osprey.h"
#include "client/osprey_result.h"

struct osprey_client {
  struct Ended {
    void* context;
    osprey_result* result;
  };

  std::unique_ptr<osprey::Client> client;  // null while it is being closed
  bool in_callback = false;
  // An exception left the Client in the middle of something: it is not touched again. Not even
  // destroyed, which would go on with what it was doing.
  bool broken = false;
  std::string message;      // of the last call that failed
  std::string description;  // osprey_client_describe
  std::deque<Ended> ended;  // not taken yet
};

struct osprey_buffer {
  osprey::Buffer buffer;
};

namespace osprey::capi {

// Results that wait to be taken; then nothing more is started without a callback.
inline constexpr size_t kEndedMax = 65536;

enum class CallKind {
  kBlocks,  // not within callbacks, which run inside of such a call
  kStarts,
};

// Whether a call on `client` may go on. It may be null.
absl::Status Admit(const osprey_client* client, CallKind kind);

// Takes note of an exception: of memory that there is not.
int Break(osprey_client* client, osprey_result** result) noexcept;

// A call that ends with a result: `body` fills it. Returns its code.
template <typename Body>
int Finish(osprey_client* client, osprey_result** result, CallKind kind, Body body) noexcept {
  if (result != nullptr) *result = nullptr;
  try {
    osprey_result answer;
    if (const absl::Status status = Admit(client, kind); !status.ok()) {
      Take(answer, status);
    } else {
      body(answer);
    }
    const int code = answer.code;
    if (code != OSPREY_OK && client != nullptr) client->message = osprey_result_message(&answer);
    if (result != nullptr) *result = new osprey_result(std::move(answer));
    return code;
  } catch (...) {
    return Break(client, result);
  }
}

template <typename Body>
int Call(osprey_client* client, osprey_result** result, Body body) noexcept {
  return Finish(client, result, CallKind::kBlocks, std::move(body));
}

// Where the end of an asynchronous operation is told.
class Sink {
 public:
  Sink(osprey_client* client, osprey_callback done, void* context)
      : client_(client), done_(done), context_(context) {}

  // A Start…'s callback, which makes a result with `make(answer)` of the library's answer.
  template <typename Make>
  auto With(Make make) const {
    return [sink = *this, make](auto answer) { sink.Tell(make(std::move(answer))); };
  }
  auto Plain() const {
    return With([](auto answer) { return answer; });
  }

  absl::Status CheckRoom() const;

 private:
  template <typename T>
  void Tell(T answer) const {
    osprey_result* result = OutOfMemory();
    try {
      auto made = std::make_unique<osprey_result>();
      Take(*made, std::move(answer));
      result = made.release();
    } catch (...) {
      // Out of memory is what it says then.
    }
    Hand(result);
  }
  void Hand(osprey_result* result) const;

  osprey_client* client_;
  osprey_callback done_;
  void* context_;
};

// A call that starts an operation: `body(sink)` does, or returns why not.
template <typename Body>
int Start(osprey_client* client, osprey_callback done, void* context, Body body) noexcept {
  return Finish(client, nullptr, CallKind::kStarts, [&](osprey_result& answer) {
    const Sink sink(client, done, context);
    absl::Status status = sink.CheckRoom();
    if (status.ok()) status = body(sink);
    if (!status.ok()) Take(answer, status);
  });
}

}  // namespace osprey::capi

#endif  // OSPREY_CLIENT_OSPREY_CLIENT_H_
