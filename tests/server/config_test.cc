#include "server/config/config.h"

#include <cstdint>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/config/host_limits.h"
#include "server/program/size_flag.h"

namespace osprey::server {
namespace {

TEST(SizeTest, WholeNumbersWithAndWithoutUnitsAreTaken) {
  EXPECT_EQ(*ParseSize("0"), 0);
  EXPECT_EQ(*ParseSize("4096"), 4096);
  EXPECT_EQ(*ParseSize("7B"), 7);
  EXPECT_EQ(*ParseSize("64KiB"), 65536);
  EXPECT_EQ(*ParseSize("64kib"), 65536);
  EXPECT_EQ(*ParseSize("512MiB"), uint64_t{512} << 20);
  EXPECT_EQ(*ParseSize("512M"), uint64_t{512} << 20);
  EXPECT_EQ(*ParseSize("4GiB"), uint64_t{4} << 30);
  EXPECT_EQ(*ParseSize("1TiB"), uint64_t{1} << 40);
  EXPECT_EQ(*ParseSize("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(*ParseSize("16777215TiB"), uint64_t{16777215} << 40);
}

TEST(SizeTest, EverythingElseIsRefusedAndQuoted) {
  for (const char* text :
       {"", "GiB", "1.5GiB", "-1", "+1", " 1", "1 GiB", "1GB", "1KB", "1GiBs", "0x10", "1e9",
        "18446744073709551616", "16777216TiB", "99999999999999999999GiB"}) {
    const absl::StatusOr<uint64_t> size = ParseSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(std::string(size.status().message()).find(std::string("'") + text + "'"),
              std::string::npos)
        << size.status();
  }
}

TEST(SizeTest, SizesAreWrittenAsTheyAreRead) {
  for (uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1024}, uint64_t{1} << 20,
        uint64_t{3} << 30, (uint64_t{1} << 40) + 1, UINT64_MAX}) {
    EXPECT_EQ(*ParseSize(FormatSize(bytes)), bytes);
  }
  EXPECT_EQ(FormatSize(uint64_t{512} << 20), "512MiB");
  EXPECT_EQ(FormatSize(1025), "1025B");
}

FlagValues GoodFlags() {
  return {
      "rdma://10.0.0.7:7411,shm:///run/osprey", "512MiB", "adaptive", 100, "1MiB", false, "clock"};
}

TEST(ConfigTest, GoodFlagsAreCopiedOnce) {
  const absl::StatusOr<Config> config = MakeConfig(GoodFlags());
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->listen.size(), 2);
  EXPECT_EQ(config->listen[0].host, "10.0.0.7");
  EXPECT_EQ(config->listen[1].path, "/run/osprey");
  EXPECT_EQ(config->memory_bytes, uint64_t{512} << 20);
  EXPECT_EQ(config->poll, PollMode::kAdaptive);
  EXPECT_EQ(config->connections_max, 100);
  EXPECT_EQ(config->connections_per_address_max, 0);
  EXPECT_EQ(config->socket_mode, 0600u);
  EXPECT_EQ(config->auth_key, nullptr);
  EXPECT_EQ(config->value_bytes_max, uint64_t{1} << 20);
  EXPECT_EQ(config->evict, EvictMode::kClock);
}

TEST(ConfigTest, UnlessAskedOtherwiseValuesMayBeAsLongAsTheyCan) {
  FlagValues flags = GoodFlags();
  flags.value_max = "";
  EXPECT_EQ(MakeConfig(flags)->value_bytes_max, uint64_t{512} << 20);
  flags.memory = "4GiB";
  EXPECT_EQ(MakeConfig(flags)->value_bytes_max, uint64_t{1} << 30);
}

// Every single wrong flag is found, and named, while the others are right.
TEST(ConfigTest, EachWrongFlagIsNamed) {
  const auto refused = [](const char* flag, auto change) {
    FlagValues flags = GoodFlags();
    change(flags);
    const absl::StatusOr<Config> config = MakeConfig(flags);
    ASSERT_FALSE(config.ok()) << flag;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(config.status().message().find(std::string("--") + flag + ": "), 0)
        << config.status();
  };
  refused("listen", [](FlagValues& f) { f.listen = ""; });
  refused("listen", [](FlagValues& f) { f.listen = "rdma://a,,rdma://b"; });
  refused("listen", [](FlagValues& f) { f.listen = "rdma://a,rdma://a:7411"; });
  refused("memory", [](FlagValues& f) { f.memory = "lots"; });
  refused("memory", [](FlagValues& f) { f.memory = "4096"; });
  refused("memory", [](FlagValues& f) { f.memory = "4TiB"; });
  refused("poll", [](FlagValues& f) { f.poll = "Busy"; });
  refused("evict", [](FlagValues& f) { f.evict = "lru"; });
  refused("evict", [](FlagValues& f) { f.evict = ""; });
  refused("connections-max", [](FlagValues& f) { f.connections_max = -1; });
  refused("connections-max", [](FlagValues& f) { f.connections_max = kConnectionsMaxMost + 1; });
  refused("pollers", [](FlagValues& f) { f.pollers = 0; });
  refused("pollers", [](FlagValues& f) { f.pollers = 65; });
  refused("value-max", [](FlagValues& f) { f.value_max = "1"; });
  refused("value-max", [](FlagValues& f) { f.value_max = "2GiB"; });
  refused("value-max", [](FlagValues& f) { f.value_max = "1GiB"; });
  refused("durability", [](FlagValues& f) { f.durability = "Sync"; });
  refused("durability", [](FlagValues& f) { f.durability = ""; });
  for (const char* text : {"", "1", "nan", "999us", "-1s", "3601s", "inf"})
    refused("durability-lag", [text](FlagValues& f) { f.durability_lag = text; });
  for (const char* text : {"", "-1", "1048575", "1025GiB"})
    refused("log-memory", [text](FlagValues& f) { f.log_memory = text; });
  for (const char* text : {"", "-1", "1048575", "1025TiB"})
    refused("checkpoint-log-bytes", [text](FlagValues& f) { f.checkpoint_log_bytes = text; });
  for (const char* text : {"", "1", "nan", "-1ns", "876001h", "inf"})
    refused("clock-jump-max", [text](FlagValues& f) { f.clock_jump_max = text; });
}

TEST(ConfigTest, BoundsOfDurabilityAreAccepted) {
  FlagValues flags = GoodFlags();
  flags.data_dir = "/data";
  flags.durability = "sync";
  flags.durability_lag = "1ms";
  flags.log_memory = flags.checkpoint_log_bytes = "1MiB";
  flags.clock_jump_max = "0";
  absl::StatusOr<Config> config = MakeConfig(flags);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->durability, DurabilityMode::kSync);
  EXPECT_EQ(config->durability_lag, absl::Milliseconds(1));
  EXPECT_EQ(config->log_memory, uint64_t{1} << 20);
  EXPECT_EQ(config->checkpoint_log_bytes, uint64_t{1} << 20);
  EXPECT_EQ(config->clock_jump_max, absl::ZeroDuration());
  flags.durability_lag = "1h";
  flags.log_memory = "1TiB";
  flags.checkpoint_log_bytes = "1024TiB";
  flags.clock_jump_max = "876000h";
  config = MakeConfig(flags);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->durability_lag, absl::Hours(1));
  EXPECT_EQ(config->log_memory, uint64_t{1} << 40);
  EXPECT_EQ(config->checkpoint_log_bytes, uint64_t{1} << 50);
  EXPECT_EQ(config->clock_jump_max, absl::Hours(876000));
}

TEST(ConfigTest, PollersCutTheMemoryAndWithItTheLongestValue) {
  FlagValues flags = GoodFlags();
  EXPECT_EQ(MakeConfig(flags)->partitions, 1);
  flags.value_max = "";
  for (const auto& [pollers, partitions] :
       {std::pair(1, 1), std::pair(2, 8), std::pair(3, 16), std::pair(64, 64)}) {
    flags.pollers = pollers;
    const absl::StatusOr<Config> config = MakeConfig(flags);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->pollers, pollers);
    EXPECT_EQ(config->partitions, partitions);
    EXPECT_EQ(config->value_bytes_max, (uint64_t{512} << 20) / partitions);
  }
}

TEST(ConfigTest, TooManyPollersForTheMemoryAreRefusedWithAFix) {
  FlagValues flags = GoodFlags();
  flags.pollers = 4;
  flags.memory = "1MiB";
  flags.value_max = "";
  EXPECT_EQ(MakeConfig(flags).status().message(),
            "--memory: 1MiB is too small for --pollers=4, which cuts it into 16 parts of at least "
            "256KiB; write 4MiB or more, or fewer pollers");
  flags.memory = "512MiB";
  flags.value_max = "200MiB";
  EXPECT_EQ(MakeConfig(flags).status().message(),
            "--value-max: 200MiB is more than a value may have: --pollers=4 cuts --memory=512MiB "
            "into parts of 32MiB, and a value lies in one; write less here, or fewer pollers");
}

TEST(ConfigTest, PortZeroMayBeAskedForTwice) {
  FlagValues flags = GoodFlags();
  flags.listen = "rdma://10.0.0.7:0,rdma://10.0.0.7:0";
  EXPECT_TRUE(MakeConfig(flags).ok());
}

TEST(ConfigTest, WhatTheMachineDoesNotHaveIsRefusedByTheFlagThatAsksForIt) {
  const Config config = *MakeConfig(GoodFlags());
  Machine machine;
  machine.memory_bytes = config.memory_bytes;
  machine.descriptors_max = DescriptorsFor(config);
  EXPECT_TRUE(CheckMachine(config, machine).ok()) << CheckMachine(config, machine);
  Machine small = machine;
  --small.memory_bytes;
  EXPECT_EQ(CheckMachine(config, small).message(),
            "--memory: 512MiB is more than this machine has, 511MiB in all; write less");
  Machine few = machine;
  --few.descriptors_max;
  EXPECT_EQ(
      CheckMachine(config, few).message(),
      "--connections-max: for 100 the process must be able to have 556 files open, and it may "
      "have 555 (ulimit -Hn); raise that, or write less");
}

TEST(ConfigTest, MorePollersThanCpusGetAWarning) {
  FlagValues flags = GoodFlags();
  flags.listen = "rdma://10.0.0.7";
  Machine machine;
  machine.cpus = 2;
  EXPECT_EQ(WarningAbout(*MakeConfig(flags), machine), "");
  flags.pollers = 2;
  EXPECT_EQ(WarningAbout(*MakeConfig(flags), machine), "");
  flags.pollers = 3;
  EXPECT_EQ(WarningAbout(*MakeConfig(flags), machine),
            "warning: --pollers=3 share 2 CPUs: writes wait for pollers that do not run; "
            "--pollers=2 fits");
  flags.pollers = 2;
  flags.listen = "shm:///run/osprey.sock";
  EXPECT_EQ(WarningAbout(*MakeConfig(flags), machine),
            "warning: --pollers=2 and clients over shm share 2 CPUs: writes wait for pollers that "
            "do not run; "
            "--pollers=1 fits");
  machine.cpus = 3;
  EXPECT_EQ(WarningAbout(*MakeConfig(flags), machine), "");
  machine.cpus = 1;
  flags.poll = "event";
  EXPECT_EQ(WarningAbout(*MakeConfig(flags), machine), "") << "they sleep";
}

TEST(ConfigTest, SyncWithoutADataDirectoryIsRefused) {
  FlagValues flags = GoodFlags();
  flags.durability = "sync";
  EXPECT_EQ(MakeConfig(flags).status().message(),
            "--durability: sync keeps nothing without --data-dir; name a directory there");
}

TEST(ConfigTest, ClientsExposeAsManyMemoriesAsThereAreFilesFor) {
  const Config config = *MakeConfig(GoodFlags());  // 100 connections
  Machine machine;
  machine.descriptors_max = DescriptorsFor(config);
  EXPECT_EQ(MemoriesPerClient(config, machine), kMemoriesLeast);
  machine.descriptors_max += 99;
  EXPECT_EQ(MemoriesPerClient(config, machine), kMemoriesLeast);
  machine.descriptors_max += 1;
  EXPECT_EQ(MemoriesPerClient(config, machine), kMemoriesLeast + 1);
}

}  // namespace
}  // namespace osprey::server
