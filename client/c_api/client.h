// The clients of osprey.h: a Client, and the begin and end of calls on it.

#ifndef OSPREY_CLIENT_C_API_CLIENT_H_
#define OSPREY_CLIENT_C_API_CLIENT_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "client/c_api/arguments.h"
#include "client/c_api/result.h"
#include "client/client.h"
#include "client/osprey.h"

struct osprey_client {
  struct Ended {
    void* context;
    osprey_result* result;
  };

  std::unique_ptr<osprey::Client> client;  // null during close
  bool in_callback = false;
  // An exception left the Client in an undefined state. It is not used again, and not even
  // destroyed, because its destructor would continue the interrupted work.
  bool broken = false;
  std::string message;      // of the last failed call
  std::string description;  // osprey_client_describe
  std::deque<Ended> ended;  // not taken yet
};

struct osprey_buffer {
  osprey::Buffer buffer;
};

namespace osprey::capi {

// The limit of results that wait to be taken; at it, no operation starts without a callback.
inline constexpr size_t kEndedMax = 65536;

enum class CallKind {
  kBlocks,  // not within callbacks, which run inside such a call
  kStarts,
};

// Whether a call on `client` may proceed. `client` may be null.
absl::Status Admit(const osprey_client* client, CallKind kind);

// Records an exception as OUT_OF_MEMORY.
int Break(osprey_client* client, osprey_result** result) noexcept;

// Runs a call that ends with a result: `body` fills it. Returns its code.
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

// Where an asynchronous operation delivers its result.
class Sink {
 public:
  Sink(osprey_client* client, osprey_callback done, void* context)
      : client_(client), done_(done), context_(context) {}

  // A callback for Start…, which makes a result of the library's answer with `make(answer)`.
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
      // The result is then OUT_OF_MEMORY.
    }
    Hand(result);
  }
  void Hand(osprey_result* result) const;

  osprey_client* client_;
  osprey_callback done_;
  void* context_;
};

// Reads a buffer, constant or not. What it returns becomes a Buffer& once no argument was wrong.
template <typename T>
auto BufferOf(T* buffer) {
  struct Argument {
    operator decltype((buffer->buffer))() const { return of->buffer; }
    T* of;
  };
  return [=](Arguments& arguments) {
    arguments.NotNull("buffer", buffer);
    return Argument{buffer};
  };
}

// The value of one input of a call: of a reader (arguments.h), of a function that makes a callback
// from the Sink, or the input itself.
template <typename Input>
auto ValueOfInput(const Input& input, Arguments& arguments, const Sink* sink) {
  if constexpr (std::is_invocable_v<const Input&, Arguments&>) {
    return input(arguments);
  } else if constexpr (std::is_invocable_v<const Input&, const Sink&>) {
    return input(*sink);
  } else {
    return input;
  }
}

// Calls `method` with the Client and the values of `inputs`, or takes the error of the first wrong
// argument.
template <typename Method, typename... Inputs>
void Invoke(osprey_result& answer, Client& client, const Sink* sink, const Method& method,
            const Inputs&... inputs) {
  Arguments arguments;
  // (Braces: from left to right.)
  const std::tuple values{std::ref(client), ValueOfInput(inputs, arguments, sink)...};
  if (!arguments.status().ok()) return Take(answer, arguments.status());
  auto returned = std::apply(method, values);
  if constexpr (std::is_same_v<decltype(returned), absl::Status>) {
    if (!returned.ok()) Take(answer, returned);
  } else {
    Take(answer, std::move(returned));
  }
}

// Runs a blocking operation: `method` of the Client, or a function of the Client.
template <typename Method, typename... Inputs>
int Run(osprey_client* client, osprey_result** result, Method method, Inputs... inputs) noexcept {
  return Call(client, result, [&](osprey_result& answer) {
    Invoke(answer, *client->client, nullptr, method, inputs...);
  });
}

// Starts an operation: the same, with an input such as Plain for its callback.
template <typename Method, typename... Inputs>
int Start(osprey_client* client, osprey_callback done, void* context, Method method,
          Inputs... inputs) noexcept {
  return Finish(client, nullptr, CallKind::kStarts, [&](osprey_result& answer) {
    const Sink sink(client, done, context);
    if (const absl::Status status = sink.CheckRoom(); !status.ok()) return Take(answer, status);
    Invoke(answer, *client->client, &sink, method, inputs...);
  });
}

}  // namespace osprey::capi

#endif  // OSPREY_CLIENT_C_API_CLIENT_H_
