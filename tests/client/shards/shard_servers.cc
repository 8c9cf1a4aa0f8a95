#include "tests/client/shards/shard_servers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "rdma/address.h"
#include "rdma/open_domain.h"
#include "rdma/raw_clock.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr uint64_t kRegionBytes = 8 << 20;
constexpr uint64_t kDataId = 0xDA7A;

absl::Time Now() { return absl::FromUnixNanos(RawClockNs()); }

}  // namespace

ShardServers::ShardServers(uint32_t shards)
    : uri_(absl::StrCat("shm://", NewTemporaryDirectory(), "/socket")),
      domain_(rdma::OpenDomain(uri_).value()),
      servers_(shards) {
  for (Server& server : servers_) {
    server.region = domain_->Allocate(kRegionBytes, rdma::Access::kRemoteRead).value();
    server.scratch = domain_->Allocate(server::kLivenessBytes, rdma::Access::kLocal).value();
    index::TableOptions options;
    server.incarnation = 0x1000 + static_cast<uint64_t>(&server - servers_.data());
    options.incarnation = server.incarnation;
    options.hash_seed = 42 + server.incarnation;
    options.clock = Now;
    server.tables =
        server::Tables::Create({server.region->data(), server.region->size()}, 1, options, {})
            .value();
  }
  for (uint32_t shard = 0; shard < shards; ++shard) Start(shard);
  thread_ = std::thread([this] { Run(); });
}

ShardServers::~ShardServers() {
  ends_ = true;
  thread_.join();
}

std::string ShardServers::UriOf(uint32_t shard) const {
  return rdma::ShardAddress(rdma::ParseAddress(uri_).value(), shard)->ToString();
}

void ShardServers::Start(uint32_t shard) {
  StartAs(shard, shard, static_cast<uint32_t>(servers_.size()));
}

void ShardServers::StartAs(uint32_t shard, uint32_t said_shard, uint32_t said_shards) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Server& server = servers_[shard];
  server::EngineOptions options;
  options.incarnation = server.incarnation;
  options.data_id = kDataId;
  options.shards = said_shards;
  options.shard = said_shard;
  options.random = [this] { return last_random_ += 512; };
  std::vector<server::EnginePort> ports;
  ports.push_back(
      {domain_->NewTransport(rdma::TransportOptionsOf(rdma::Address::Scheme::kShm)).value(),
       server.region.get(), server.scratch.get()});
  server.engine =
      std::make_unique<server::Engine>(*server.tables, std::move(ports), options, Now());
  const absl::StatusOr<std::string> listening = server.engine->Listen(0, UriOf(shard));
  ASSERT_TRUE(listening.ok()) << listening.status();
}

void ShardServers::Stop(uint32_t shard) {
  const std::lock_guard<std::mutex> lock(mutex_);
  servers_[shard].engine.reset();
}

void ShardServers::SetFrozen(uint32_t shard, bool frozen) {
  const std::lock_guard<std::mutex> lock(mutex_);
  servers_[shard].frozen = frozen;
}

uint64_t ShardServers::KeysOf(uint32_t shard) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return servers_[shard].tables->stats().keys;
}

void ShardServers::Run() {
  while (!ends_) {
    bool worked = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (Server& server : servers_) {
        if (server.engine != nullptr && !server.frozen) worked |= server.engine->Poll(Now());
      }
    }
    // (Another thread takes the lock meanwhile.)
    if (!worked) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace osprey
