#include "client/c_api/client.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/c_api/arguments.h"

using osprey::WaitMode;
using osprey::capi::Call;
using osprey::capi::CallKind;
using osprey::capi::Error;
using osprey::capi::Finish;
using osprey::capi::Take;

struct osprey_options {
  osprey::Options options;
  int wait_mode = OSPREY_WAIT_ADAPTIVE;
  int key_error = OSPREY_OK;  // of the last attempt to set a key
};

namespace osprey::capi {

absl::Status Admit(const osprey_client* client, CallKind kind) {
  if (client == nullptr) return Error(OSPREY_ERROR_NULL_ARGUMENT, "`client` must not be NULL");
  if (client->broken)
    return Error(OSPREY_ERROR_OUT_OF_MEMORY, osprey_error_text(OSPREY_ERROR_OUT_OF_MEMORY));
  if (client->in_callback && kind == CallKind::kBlocks)
    return Error(OSPREY_ERROR_IN_CALLBACK, osprey_error_text(OSPREY_ERROR_IN_CALLBACK));
  if (client->client == nullptr) return Error(OSPREY_ERROR_CLOSED, "the client is being closed");
  return absl::OkStatus();
}

int Break(osprey_client* client, osprey_result** result) noexcept {
  if (client != nullptr) client->broken = true;
  if (result != nullptr) *result = OutOfMemory();
  return OSPREY_ERROR_OUT_OF_MEMORY;
}

absl::Status Sink::CheckRoom() const {
  if (done_ != nullptr || client_->ended.size() < kEndedMax) return absl::OkStatus();
  return Error(OSPREY_ERROR_TOO_MANY_OPERATIONS,
               absl::StrCat("not started: ", kEndedMax,
                            " results wait to be taken; osprey_take_ended takes them"));
}

void Sink::Hand(osprey_result* result) const {
  if (done_ == nullptr) {
    client_->ended.push_back({context_, result});
    return;
  }
  client_->in_callback = true;
  done_(context_, result);
  client_->in_callback = false;
}

namespace {

absl::Status SetWait(int mode, Options& options) {
  switch (mode) {
    case OSPREY_WAIT_SPIN:
      options.wait = WaitMode::kSpin;
      return absl::OkStatus();
    case OSPREY_WAIT_ADAPTIVE:
      options.wait = WaitMode::kAdaptive;
      return absl::OkStatus();
    case OSPREY_WAIT_EVENT:
      options.wait = WaitMode::kEvent;
      return absl::OkStatus();
    default:
      return Error(OSPREY_ERROR_BAD_OPTION,
                   absl::StrCat("the wait mode is ", mode, "; it must be an OSPREY_WAIT_…"));
  }
}

// A malformed address is the only error here without a Reason.
absl::Status WithReason(const absl::Status& status) {
  if (CodeOf(status) != OSPREY_ERROR_OTHER || !absl::IsInvalidArgument(status)) return status;
  return Error(OSPREY_ERROR_BAD_ADDRESS, status.message());
}

absl::StatusOr<std::unique_ptr<Client>> Connect(const char* uri, const osprey_options* options) {
  if (uri == nullptr) return Error(OSPREY_ERROR_NULL_ARGUMENT, "`uri` must not be NULL");
  if (options != nullptr && options->key_error != OSPREY_OK)
    return Error(options->key_error, "the key could not be set: it is NULL, empty or too long");
  Options chosen = options == nullptr ? Options() : options->options;
  const int mode = options == nullptr ? static_cast<int>(OSPREY_WAIT_ADAPTIVE) : options->wait_mode;
  if (absl::Status status = SetWait(mode, chosen); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, chosen);
  if (!client.ok()) return WithReason(client.status());
  return client;
}

}  // namespace
}  // namespace osprey::capi

int osprey_api_version(void) { return OSPREY_API_MAJOR * 1000 + OSPREY_API_MINOR; }

osprey_options* osprey_options_new(void) { return new (std::nothrow) osprey_options; }
void osprey_options_free(osprey_options* options) { delete options; }

void osprey_options_set_connect_timeout_us(osprey_options* options, int64_t timeout_us) {
  if (options != nullptr) options->options.connect_timeout = absl::Microseconds(timeout_us);
}

void osprey_options_set_deadline_us(osprey_options* options, int64_t deadline_us) {
  if (options != nullptr) options->options.deadline = absl::Microseconds(deadline_us);
}

void osprey_options_set_wait(osprey_options* options, int wait_mode) {
  if (options != nullptr) options->wait_mode = wait_mode;
}

void osprey_options_set_spin_us(osprey_options* options, int64_t spin_us) {
  if (options != nullptr) options->options.spin = absl::Microseconds(spin_us);
}

void osprey_options_set_operations_max(osprey_options* options, int operations) {
  if (options != nullptr) options->options.operations_max = operations;
}

void osprey_options_set_backoff_us(osprey_options* options, int64_t first_us, int64_t last_us) {
  if (options == nullptr) return;
  options->options.backoff_first = absl::Microseconds(first_us);
  options->options.backoff_last = absl::Microseconds(last_us);
}

void osprey_options_set_buffer_bytes_max(osprey_options* options, uint64_t bytes) {
  if (options != nullptr) options->options.buffer_bytes_max = bytes;
}

void osprey_options_set_slot_cache_bytes(osprey_options* options, uint64_t bytes) {
  if (options != nullptr) options->options.slot_cache_bytes = bytes;
}

namespace {

// An empty key would mean no key, and the connection would not be authenticated. So osprey_connect
// fails as well, in case the program ignores this error.
int SetKey(osprey_options* options, std::string osprey::Options::*key, const void* data,
           size_t length) noexcept {
  if (options == nullptr) return OSPREY_ERROR_NULL_ARGUMENT;
  options->key_error = OSPREY_OK;
  if (data == nullptr) {
    options->key_error = OSPREY_ERROR_NULL_ARGUMENT;
  } else if (length == 0) {
    options->key_error = OSPREY_ERROR_BAD_AUTH_KEY;
  } else {
    try {
      (options->options.*key).assign(static_cast<const char*>(data), length);
    } catch (...) {
      options->key_error = OSPREY_ERROR_OUT_OF_MEMORY;
    }
  }
  return options->key_error;
}

}  // namespace

int osprey_options_set_auth_key_file(osprey_options* options, const char* path) {
  return SetKey(options, &osprey::Options::auth_key_file, path,
                path == nullptr ? 0 : std::strlen(path));
}

int osprey_options_set_auth_key(osprey_options* options, const void* key, size_t key_length) {
  return SetKey(options, &osprey::Options::auth_key, key, key_length);
}

int osprey_connect(const char* uri, const osprey_options* options, osprey_client** client,
                   osprey_result** result) {
  if (client != nullptr) *client = nullptr;
  if (result != nullptr) *result = nullptr;
  try {
    auto made = std::make_unique<osprey_client>();
    osprey_result answer;
    if (client == nullptr) {
      Take(answer, Error(OSPREY_ERROR_NULL_ARGUMENT, "`client` must not be NULL"));
    } else if (auto connected = osprey::capi::Connect(uri, options); connected.ok()) {
      made->client = *std::move(connected);
    } else {
      Take(answer, connected.status());
    }
    const int code = answer.code;
    if (result != nullptr) *result = new osprey_result(std::move(answer));
    if (code == OSPREY_OK) *client = made.release();
    return code;
  } catch (...) {
    return osprey::capi::Break(nullptr, result);
  }
}

int osprey_close(osprey_client* client) {
  if (client == nullptr) return OSPREY_OK;
  if (client->in_callback) return OSPREY_ERROR_IN_CALLBACK;
  const std::unique_ptr<osprey_client> owned(client);
  std::unique_ptr<osprey::Client> closing = std::move(owned->client);
  if (owned->broken) (void)closing.release();
  closing.reset();  // its callbacks still see `owned`
  for (const osprey_client::Ended& ended : owned->ended) osprey_result_free(ended.result);
  return OSPREY_OK;
}

const char* osprey_client_message(const osprey_client* client) {
  if (client == nullptr) return "";
  return client->broken ? osprey_error_text(OSPREY_ERROR_OUT_OF_MEMORY) : client->message.c_str();
}

const char* osprey_client_describe(osprey_client* client) {
  const int code = Finish(client, nullptr, CallKind::kStarts, [&](osprey_result&) {
    client->description = client->client->Describe();
  });
  return code == OSPREY_OK ? client->description.c_str() : "";
}

uint64_t osprey_client_counter(const osprey_client* client, int counter) {
  if (client == nullptr || client->client == nullptr) return 0;
  const osprey::Counters& counters = client->client->counters();
  switch (counter) {
    case OSPREY_COUNTER_GETS:
      return counters.gets;
    case OSPREY_COUNTER_HITS:
      return counters.hits;
    case OSPREY_COUNTER_MISSES:
      return counters.misses;
    case OSPREY_COUNTER_WRITES:
      return counters.writes;
    case OSPREY_COUNTER_READS:
      return counters.reads;
    case OSPREY_COUNTER_READ_BYTES:
      return counters.read_bytes;
    case OSPREY_COUNTER_SCAN_READS:
      return counters.scan_reads;
    case OSPREY_COUNTER_TORN:
      return counters.torn;
    case OSPREY_COUNTER_RETRIES:
      return counters.retries;
    case OSPREY_COUNTER_HINTS:
      return counters.hints;
    case OSPREY_COUNTER_STALE_HINTS:
      return counters.stale_hints;
    case OSPREY_COUNTER_RPC_GETS:
      return counters.rpc_gets;
    case OSPREY_COUNTER_MESSAGES:
      return counters.messages;
    case OSPREY_COUNTER_FRAMES:
      return counters.frames;
    case OSPREY_COUNTER_CONNECTS:
      return counters.connects;
    default:
      return 0;
  }
}

int osprey_poll(osprey_client* client) {
  int count = 0;
  const int code = Call(client, nullptr, [&](osprey_result&) { count = client->client->Poll(); });
  return code == OSPREY_OK ? count : -code;
}

int osprey_wait(osprey_client* client, int64_t timeout_us) {
  int count = 0;
  const int code = Call(client, nullptr, [&](osprey_result&) {
    count = client->client->Wait(absl::Microseconds(timeout_us));
  });
  return code == OSPREY_OK ? count : -code;
}

int osprey_in_flight(const osprey_client* client) {
  return client == nullptr || client->client == nullptr ? 0 : client->client->in_flight();
}

osprey_result* osprey_take_ended(osprey_client* client, void** context) {
  if (client == nullptr || client->ended.empty()) return nullptr;
  const osprey_client::Ended ended = client->ended.front();
  client->ended.pop_front();
  if (context != nullptr) *context = ended.context;
  return ended.result;
}
