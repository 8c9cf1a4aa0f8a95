// Admission of connections.

#include "server/stats/admission.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace osprey::server {
namespace {

using rdma::RejectReason;

AdmissionLimits Limits(size_t connections_max, size_t per_source_max,
                       bool requires_authentication) {
  AdmissionLimits limits;
  limits.connections_max = connections_max;
  limits.per_source_max = per_source_max;
  limits.requires_authentication = requires_authentication;
  return limits;
}

// As many tickets as are granted, at most `count`.
std::vector<Admission::Ticket> Take(Admission& admission, const std::string& source, size_t count,
                                    RejectReason* refusal = nullptr) {
  std::vector<Admission::Ticket> tickets;
  for (size_t i = 0; i < count; ++i) {
    Admission::Answer answer = admission.Ask(source);
    EXPECT_EQ(answer.ticket.valid(), answer.refusal == RejectReason::kNone);
    if (refusal != nullptr) *refusal = answer.refusal;
    if (!answer.ticket.valid()) break;
    tickets.push_back(std::move(answer.ticket));
  }
  return tickets;
}

TEST(AdmissionTest, NoMoreConnectionsThanAllMayHaveAreLetIn) {
  Admission admission(Limits(3, 0, false));
  RejectReason refusal;
  std::vector<Admission::Ticket> tickets = Take(admission, "10.0.0.1", 9, &refusal);
  EXPECT_EQ(tickets.size(), 3u);
  EXPECT_EQ(refusal, RejectReason::kTooManyConnections);
  EXPECT_EQ(admission.Ask("10.0.0.2").refusal, RejectReason::kTooManyConnections);
  EXPECT_EQ(admission.refusals().in_all, 2u);
  tickets.pop_back();
  EXPECT_TRUE(admission.Ask("10.0.0.2").ticket.valid());  // and is released at once
  EXPECT_EQ(admission.connections(), 2u);
}

TEST(AdmissionTest, ConnectionLimitAppliesPerSource) {
  Admission admission(Limits(100, 2, false));
  RejectReason refusal;
  std::vector<Admission::Ticket> first = Take(admission, "10.0.0.1", 9, &refusal);
  EXPECT_EQ(first.size(), 2u);
  EXPECT_EQ(refusal, RejectReason::kTooManyFromSource);
  EXPECT_EQ(Take(admission, "10.0.0.2", 9).size(), 2u);
  EXPECT_EQ(admission.refusals().per_source, 2u);
  first.clear();
  EXPECT_EQ(Take(admission, "10.0.0.1", 1).size(), 1u);
}

TEST(AdmissionTest, UnauthenticatedPeersLeaveCapacityForClients) {
  Admission admission(Limits(1024, 0, true));
  RejectReason refusal;
  // A flood from one source takes only a part of the space for unauthenticated peers.
  const std::vector<Admission::Ticket> flood = Take(admission, "10.0.0.66", 5000, &refusal);
  EXPECT_EQ(flood.size(), 64u);
  EXPECT_EQ(refusal, RejectReason::kTooManyUnauthenticated);
  // All others are admitted, one after the other, if each proves itself.
  std::vector<Admission::Ticket> clients;
  for (int i = 0; i < 900; ++i) {
    Admission::Answer answer = admission.Ask("10.0.0.7");
    ASSERT_TRUE(answer.ticket.valid()) << i;
    answer.ticket.Known();
    answer.ticket.Known();  // repeated calls have no effect
    clients.push_back(std::move(answer.ticket));
  }
  EXPECT_EQ(admission.unauthenticated(), 64u);
  EXPECT_EQ(admission.connections(), 964u);
}

TEST(AdmissionTest, UnauthenticatedPeersTakeAQuarterAtMost) {
  Admission admission(Limits(1024, 0, true));
  std::vector<std::vector<Admission::Ticket>> floods;
  for (int i = 0; i < 20; ++i) floods.push_back(Take(admission, "10.0.1." + std::to_string(i), 99));
  EXPECT_EQ(admission.unauthenticated(), 256u);
  EXPECT_EQ(admission.connections(), 256u);
  floods.clear();
  EXPECT_EQ(admission.unauthenticated(), 0u);
  EXPECT_EQ(admission.connections(), 0u);
}

TEST(AdmissionTest, AFewUnauthenticatedPeersAreAlwaysAdmitted) {
  Admission admission(Limits(8, 0, true));
  EXPECT_EQ(Take(admission, "10.0.0.1", 99).size(), 8u);
}

TEST(AdmissionTest, WithoutAKeyNoPeerCountsAsUnauthenticated) {
  Admission admission(Limits(1000, 0, false));
  EXPECT_EQ(Take(admission, "10.0.0.1", 5000).size(), 1000u);
  EXPECT_EQ(admission.unauthenticated(), 0u);
}

TEST(AdmissionTest, AMovedTicketCountsOnce) {
  Admission admission(Limits(8, 0, true));
  Admission::Ticket ticket = std::move(admission.Ask("a").ticket);
  Admission::Ticket other = std::move(ticket);
  EXPECT_FALSE(ticket.valid());  // NOLINT: use after move is tested
  EXPECT_EQ(other.source(), "a");
  EXPECT_EQ(admission.connections(), 1u);
  other = Admission::Ticket();
  EXPECT_EQ(admission.connections(), 0u);
}

TEST(AdmissionTest, ManyThreadsNeverPassTheBounds) {
  Admission admission(Limits(40, 15, true));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&admission, t] {
      std::vector<Admission::Ticket> mine;
      for (int i = 0; i < 5000; ++i) {
        Admission::Answer answer = admission.Ask(t % 2 == 0 ? "even" : "odd");
        if (answer.ticket.valid()) mine.push_back(std::move(answer.ticket));
        if (!mine.empty() && i % 3 == 0) mine.back().Known();
        if (mine.size() > 6 || i % 5 == 0) mine.clear();
        ASSERT_LE(admission.connections(), 30u);  // two sources
        ASSERT_LE(admission.unauthenticated(), 16u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admission.connections(), 0u);
  EXPECT_EQ(admission.unauthenticated(), 0u);
}

}  // namespace
}  // namespace osprey::server
