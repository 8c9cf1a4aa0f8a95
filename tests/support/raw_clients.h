// Many clients of one kvserver on one Transport, each little more than its connection. They serve
// tests with more clients than osprey::Clients fit in memory, or with misbehaving ones.
//
//   RawClients clients(uri, RawClients::kSmall);
//   clients.Connect(2000, 64);
//   clients.Until([&] { return clients.welcomed() == 2000; }, absl::Seconds(30));
//   clients.Use();      // each PUTs a key of its own, and READs from the table
//   clients.Until([&] { return clients.used() == 2000; }, absl::Seconds(30));
//
// A client that cannot connect retries after a pause, as osprey::Clients do.
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_SUPPORT_RAW_CLIENTS_H_
#define OSPREY_TESTS_SUPPORT_RAW_CLIENTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"

namespace osprey {

class RawClients {
 public:
  // The shortest and fewest frames: some 165 KB at the server instead of 650.
  static constexpr rdma::TransportOptions kSmall = {
      .receive_credits = 4, .frame_bytes_max = 4184, .reads_in_flight_max = 4};

  // REQUIRES: a device exists; the test fails otherwise.
  RawClients(std::string uri, const rdma::TransportOptions& options);
  ~RawClients();

  // Connects `count` more clients, `at_once` at a time. With `say_nothing` they connect and send
  // nothing.
  void Connect(int count, int at_once, bool say_nothing = false);
  // Each client whose connection has ended connects again, all at once, and resumes its session.
  void Reconnect();
  // Each client with a session PUTs its key. After the answer it READs the beginning of the table.
  void Use();
  // Each client with a session sends `count` PUTs of its key; the answers are ignored.
  void SendPuts(int count, absl::string_view value);
  // Ends all connections: with a disconnect notice that gives up the session, or without.
  void Disconnect(bool farewell);

  // Returns the number of events.
  size_t Poll();
  // Polls until the condition is true or the time is over; sleeps while idle.
  bool Until(const std::function<bool()>& condition, absl::Duration patience);

  int connections() const { return connections_; }  // not ended
  int connected() const { return connected_; }
  int welcomed() const { return welcomed_; }
  int resumed() const { return resumed_; }  // of these, those that got their session again
  int used() const { return used_; }
  int retries() const { return retries_; }  // attempts to connect that failed, and were made again
  const absl::Status& last_end() const { return last_end_; }  // of a connection that failed

 private:
  enum class Stage { kEnded, kConnecting, kConnected, kWelcomed };
  struct One {
    rdma::ConnectionId id = rdma::ConnectionId::kNone;
    Stage stage = Stage::kEnded;
    bool says_nothing = false;
    bool using_it = false;  // an answer, and then a READ, is awaited
    uint64_t session = 0, incarnation = 0;
    uint64_t sequence = 0;
    rdma::WireMemory region;
  };

  void StartSome();
  void Start(size_t index);
  void OnConnected(One& one);
  void OnFrame(One& one, rdma::Bytes frame);
  void OnEnd(size_t index, const absl::Status& status);
  absl::Status SendPut(size_t index, absl::string_view value);
  void ReadTable(One& one);

  const std::string uri_;
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<rdma::Memory> liveness_, sink_;
  std::unique_ptr<rdma::Transport> transport_;
  std::vector<One> all_;
  struct Due {
    absl::Time at;
    size_t index = 0;
  };
  std::deque<Due> to_start_;
  int at_once_ = 0;
  std::map<rdma::ConnectionId, size_t> by_id_;
  int connections_ = 0, starting_ = 0, connected_ = 0, welcomed_ = 0, resumed_ = 0, used_ = 0,
      retries_ = 0;
  absl::Status last_end_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_RAW_CLIENTS_H_
