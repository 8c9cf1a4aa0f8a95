// Effect of misbehaving clients on the latency of others, over verbs. Needs the lab.
//
// The guest has two CPUs, which are emulated and shared with other work of the host. So a client
// that floods a server takes CPU from every process on this machine, whatever the server does, and
// a busy host adds more. To measure only the server, there are two servers, and one of them has the
// misbehaving clients. Both run on one CPU, and all clients on the other one. *Else* a server that is
// flooded waits for a CPU that clients have, and one that is quiet does not. The measuring client
// alternates between them within half a millisecond, so that other effects are the same for both.
// The latency of the other server is the quiet value. The test compares p50 and p99 of all operations
// of some rounds, in each of which the misbehaving clients start again. The p99 of one round would be
// the host's effect on seven operations. If a limit is exceeded after kRounds, three times as many
// are judged: the host's effects even out, a server's do not.

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/raw_clients.h"
#include "tests/support/subprocess.h"
#include "tools/common/histogram.h"

namespace osprey {
namespace {

constexpr int kRounds = 5;
constexpr int kOperations = 700;  // of each kind in a round
constexpr absl::Duration kRoundMax = absl::Seconds(3);
constexpr absl::Duration kPace = absl::Microseconds(200);  // between two operations
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr double kTimesQuietMax = 2;
constexpr int kMost = 2100;  // connections

uint64_t NanosecondsOf(const std::function<absl::Status()>& operation) {
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = operation();
  const auto end = std::chrono::steady_clock::now();
  EXPECT_TRUE(status.ok()) << status;
  return static_cast<uint64_t>(std::chrono::nanoseconds(end - begin).count());
}

// Its threads, and those that they begin.
void RunOnCpu(int cpu, pid_t process) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  for (const auto& thread :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/task"))) {
    const pid_t id = std::stoi(thread.path().filename());
    EXPECT_EQ(sched_setaffinity(id, sizeof(cpus), &cpus), 0);
  }
}

struct Latencies {
  Histogram put_ns, get_ns;
};

// Begins when it is made, and ends when it is destroyed.
class Misbehaving {
 public:
  virtual ~Misbehaving() = default;
};

class NoisyNeighbourTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::unique_ptr<ServerProcess>* server : {&server_, &other_}) {
      absl::StatusOr<std::unique_ptr<ServerProcess>> started =
          ServerProcess::Start(NewListenAddress(), {absl::StrCat("--connections-max=", kMost)});
      ASSERT_TRUE(started.ok()) << started.status();
      *server = *std::move(started);
      RunOnCpu(0, (*server)->pid());
    }
    RunOnCpu(1, getpid());
    modest_ = Connect(server_->uri());
    modest_elsewhere_ = Connect(other_->uri());
  }
  std::unique_ptr<Client> Connect(const std::string& uri) {
    Options options;
    options.deadline = kPatience;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  void RunRound(Latencies& quiet, Latencies& disturbed) {
    const std::pair<Client*, Latencies*> sides[] = {{modest_elsewhere_.get(), &quiet},
                                                    {modest_.get(), &disturbed}};
    const std::string value(64, 'v');
    const absl::Time end = absl::Now() + kRoundMax;
    for (int i = 0; i < kOperations && absl::Now() < end; ++i) {
      const std::string key = absl::StrCat("modest", i % 16);
      for (int which : {i % 2, 1 - i % 2}) {
        const auto& [client, latencies] = sides[which];
        absl::SleepFor(kPace);
        latencies->put_ns.Record(NanosecondsOf(
            [client = client, &key, &value] { return client->Put(key, value).status(); }));
        latencies->get_ns.Record(
            NanosecondsOf([client = client, &key] { return client->Get(key).status(); }));
      }
    }
  }

  template <typename MisbehavingClients>
  void ExpectToleratedBeside() {
    Latencies quiet, disturbed;
    for (int rounds = 0; !IsEnough(rounds, quiet, disturbed); ++rounds) {
      const MisbehavingClients misbehaving(server_->uri());
      RunRound(quiet, disturbed);
    }
    Compare(quiet, disturbed);
  }

  // Whether no more rounds are needed than these.
  static bool IsEnough(int rounds, const Latencies& quiet, const Latencies& disturbed) {
    return rounds == 3 * kRounds || (rounds == kRounds && IsTolerable(quiet, disturbed));
  }

  static void Compare(const Latencies& quiet, const Latencies& disturbed) {
    Compare("PUT", quiet.put_ns, disturbed.put_ns);
    Compare("GET", quiet.get_ns, disturbed.get_ns);
  }
  static void Compare(const char* name, const Histogram& quiet, const Histogram& disturbed) {
    std::printf("%s: %.0f us quiet, %.0f us disturbed at p50; %.0f and %.0f at p99; of %d\n", name,
                Us(quiet, 0.5), Us(disturbed, 0.5), Us(quiet, 0.99), Us(disturbed, 0.99),
                static_cast<int>(disturbed.count()));
    EXPECT_TRUE(IsTolerable(quiet, disturbed)) << name;
  }
  static double Us(const Histogram& histogram, double quantile) {
    return 1e-3 * static_cast<double>(histogram.ValueAt(quantile));
  }
  static bool IsTolerable(const Latencies& quiet, const Latencies& disturbed) {
    return IsTolerable(quiet.put_ns, disturbed.put_ns) &&
           IsTolerable(quiet.get_ns, disturbed.get_ns);
  }
  static bool IsTolerable(const Histogram& quiet, const Histogram& disturbed) {
    return Us(disturbed, 0.5) <= kTimesQuietMax * Us(quiet, 0.5) &&
           Us(disturbed, 0.99) <= kTimesQuietMax * Us(quiet, 0.99);
  }

  std::unique_ptr<ServerProcess> server_, other_;
  std::unique_ptr<Client> modest_, modest_elsewhere_;
};

// A thread with light clients, from the constructor's end on until `stop_`.
class Thread : public Misbehaving {
 public:
  ~Thread() override { Stop(); }
  void Stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }

 protected:
  // Returns when `begun_` was set, which `run` does.
  void Start(std::function<void()> run) {
    thread_ = std::thread(std::move(run));
    const absl::Time end = absl::Now() + kPatience;
    while (!begun_.load() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(begun_.load());
  }

  std::atomic<bool> stop_{false}, begun_{false};

 private:
  std::thread thread_;
};

// As many PUTs as a Client can have under way, all the time.
class Flood : public Thread {
 public:
  explicit Flood(const std::string& uri) {
    Start([this, uri] {
      Options options;
      options.deadline = kPatience;
      options.operations_max = kInFlight;
      const std::unique_ptr<Client> client = Client::Connect(uri, options).value();
      const std::string value(64, 'f');
      for (uint64_t i = 0; !stop_.load();) {
        while (client->in_flight() < kInFlight) {
          const absl::Status started =
              client->StartPut(absl::StrCat("flood", i++ % 1000), value, {}, [](auto) {});
          if (!started.ok()) break;
        }
        client->Poll();
        if (i > 5000) begun_.store(true);
      }
    });
  }

 private:
  static constexpr int kInFlight = 256;
};

// Their connections are polled while they are made, and again when all have been disconnected.
// Until then the server cannot send.
class Deaf : public Thread {
 public:
  explicit Deaf(const std::string& uri) {
    Start([this, uri] {
      RawClients clients(uri, rdma::TransportOptions());
      clients.Connect(kClients, kClients);
      while (!stop_.load()) {
        EXPECT_TRUE(clients.Until([&] { return clients.welcomed() == kClients || stop_.load(); },
                                  kPatience));
        clients.SendPuts(100, std::string(4000, 'd'));
        begun_.store(true);
        const absl::Time end = absl::Now() + absl::Seconds(1.2);  // when the server's timeout ends
        while (absl::Now() < end && !stop_.load()) absl::SleepFor(absl::Milliseconds(10));
        EXPECT_TRUE(clients.Until([&] { return clients.welcomed() < kClients || stop_.load(); },
                                  kPatience));
        clients.Reconnect();
      }
    });
  }

 private:
  static constexpr int kClients = 8;
};

class Silent : public Misbehaving {
 public:
  explicit Silent(const std::string& uri) : clients_(uri, RawClients::kSmall) {
    clients_.Connect(kClients, kClients, /*say_nothing=*/true);
    EXPECT_TRUE(clients_.Until([&] { return clients_.connected() == kClients; }, kPatience));
  }

 private:
  static constexpr int kClients = 32;
  RawClients clients_;
};

// Hundreds of clients whose network fails and returns: all disconnect at once, and all resume their
// sessions at once.
class Returning : public Thread {
 public:
  explicit Returning(const std::string& uri) {
    Start([this, uri] {
      RawClients clients(uri, RawClients::kSmall);
      clients.Connect(kClients, kAtOnce);
      while (!stop_.load()) {
        EXPECT_TRUE(clients.Until([&] { return clients.welcomed() == kClients || stop_.load(); },
                                  kPatience));
        clients.Disconnect(/*farewell=*/false);
        EXPECT_TRUE(
            clients.Until([&] { return clients.connections() == 0 || stop_.load(); }, kPatience));
        begun_.store(true);
        clients.Reconnect();
      }
      came_back_.store(clients.resumed());
    });
  }

  int came_back() const { return came_back_.load(); }

 private:
  static constexpr int kClients = 500, kAtOnce = 32;
  std::atomic<int> came_back_{0};
};

// Many clients that connect, use their connections, and leave.
class Crowd : public Thread {
 public:
  explicit Crowd(const std::string& uri) {
    Start([this, uri] {
      begun_.store(true);
      RawClients clients(uri, RawClients::kSmall);
      const auto until = [&](int (RawClients::*count)() const, int value) {
        EXPECT_TRUE(clients.Until([&] { return (clients.*count)() == value; }, kPatience))
            << (clients.*count)() << " of " << value << ", " << clients.last_end();
      };
      clients.Connect(kClients, kAtOnce);
      until(&RawClients::welcomed, kClients);
      clients.Use();
      until(&RawClients::used, kClients);
      clients.Disconnect(/*farewell=*/true);
      until(&RawClients::connections, 0);
      has_left_.store(true);
    });
  }

  bool has_left() const { return has_left_.load(); }

 private:
  static constexpr int kClients = 2000, kAtOnce = 32;
  std::atomic<bool> has_left_{false};
};

TEST_F(NoisyNeighbourTest, AClientThatSendsAsFastAsItCanAtMostDoublesTheLatencyOfOthers) {
  ExpectToleratedBeside<Flood>();
}

TEST_F(NoisyNeighbourTest, ClientsThatTakeNoRepliesAtMostDoubleTheLatencyOfOthers) {
  ExpectToleratedBeside<Deaf>();
}

TEST_F(NoisyNeighbourTest, SilentConnectionsAtMostDoubleTheLatencyOfOthers) {
  ExpectToleratedBeside<Silent>();
}

TEST_F(NoisyNeighbourTest, FiveHundredReconnectingAtMostDoubleTheLatencyOfOthers) {
  // They take longer than a round.
  Latencies quiet, disturbed;
  Returning misbehaving(server_->uri());
  for (int rounds = 0; !IsEnough(rounds, quiet, disturbed); ++rounds) RunRound(quiet, disturbed);
  misbehaving.Stop();
  std::printf("meanwhile %d came back\n", misbehaving.came_back());
  EXPECT_GT(misbehaving.came_back(), 0);
  Compare(quiet, disturbed);
}

TEST_F(NoisyNeighbourTest, TwoThousandShortClientsAtMostDoubleTheLatencyOfOthers) {
  Latencies quiet, disturbed;
  for (int crowds = 0; crowds < 3; ++crowds) {  // or one, as above
    Crowd crowd(server_->uri());
    const absl::Time end = absl::Now() + 3 * kPatience;  // of its three steps
    while (!crowd.has_left() && absl::Now() < end) RunRound(quiet, disturbed);
    crowd.Stop();
    ASSERT_TRUE(crowd.has_left());
    if (crowds == 0 && IsTolerable(quiet, disturbed)) break;
  }
  Compare(quiet, disturbed);
}

}  // namespace
}  // namespace osprey
