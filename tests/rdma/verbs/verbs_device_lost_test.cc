// A device that is removed under a running transport. Needs the lab, and alone: it takes away the
// lab's device.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;
using VerbsDeviceLost = TransportContract;

INSTANTIATE_TEST_SUITE_P(Way, VerbsDeviceLost, testing::Values(ContractWays().front()));

TEST_P(VerbsDeviceLost, DeviceRemovalIsReportedOnceAndConnectionsEnd) {
  const std::string device = std::getenv("LAB_DEVICE");
  std::thread removal;
  {
    Side server(*fixture_), client(*fixture_);
    const Ids ids = Join(server, client, Listen(server));
    // The removal ends only when no process uses the device any more.
    removal =
        std::thread([&] { EXPECT_EQ(std::system(("rdma link delete " + device).c_str()), 0); });
    EXPECT_TRUE(Until({&server, &client}, [&] {
      return server.Find(Kind::kDeviceLost) != nullptr &&
             client.Find(Kind::kDeviceLost) != nullptr &&
             server.Find(Kind::kDisconnected, ids.server) != nullptr &&
             client.Find(Kind::kDisconnected, ids.client) != nullptr;
    }));
    for (int i = 0; i < 1000; i++) {
      server.Pump();
      client.Pump();
    }
    for (Side* side : {&server, &client}) {
      int told = 0;
      for (const Recorded& event : side->events()) told += event.kind == Kind::kDeviceLost;
      EXPECT_EQ(told, 1);
      EXPECT_EQ(side->transport().resources().queue_pairs, 0u);
    }
  }
  // librdmacm keeps the device's context open for the life of the process, since its CM ids share
  // it. So the removal ends with this process: there is nothing to join.
  removal.detach();
}

}  // namespace
}  // namespace osprey::rdma
