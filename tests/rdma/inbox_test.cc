// Messages between threads through an Inbox.

#include "rdma/inbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>

namespace osprey::rdma {
namespace {

using Things = std::vector<int>;

bool IsReadable(const Inbox<int>& inbox) {
  pollfd wait = {inbox.fd(), POLLIN, 0};
  return poll(&wait, 1, /*timeout=*/0) == 1;
}

std::unique_ptr<Inbox<int>> InboxOf(const Things& things, size_t size_max = 16) {
  std::unique_ptr<Inbox<int>> inbox = Inbox<int>::Create(size_max).value();
  for (const int thing : things)
    EXPECT_TRUE(inbox->Put([&]() -> absl::StatusOr<int> { return thing; }).ok());
  return inbox;
}

TEST(InboxTest, TheOldestAreTakenAndTheOthersStay) {
  const std::unique_ptr<Inbox<int>> inbox = InboxOf({1, 2, 3, 4});
  EXPECT_EQ(inbox->Take(1), Things({1}));
  EXPECT_EQ(inbox->Take(2), Things({2, 3}));
  EXPECT_EQ(inbox->Take(2), Things({4}));
  EXPECT_EQ(inbox->Take(2), Things());
}

TEST(InboxTest, AllAreTakenUnlessACountIsSaid) {
  EXPECT_EQ(InboxOf({1, 2, 3})->Take(), Things({1, 2, 3}));
}

TEST(InboxTest, ItIsReadableWhileAnyIsLeft) {
  const std::unique_ptr<Inbox<int>> inbox = InboxOf({});
  EXPECT_FALSE(IsReadable(*inbox));
  for (const int thing : {1, 2})
    ASSERT_TRUE(inbox->Put([&]() -> absl::StatusOr<int> { return thing; }).ok());
  EXPECT_TRUE(IsReadable(*inbox));
  (void)inbox->Take(1);
  EXPECT_TRUE(IsReadable(*inbox)) << "one is left";
  (void)inbox->Take(1);
  EXPECT_FALSE(IsReadable(*inbox));
}

TEST(InboxTest, TakingAnItemFreesCapacity) {
  const std::unique_ptr<Inbox<int>> inbox = InboxOf({1, 2}, /*size_max=*/2);
  bool is_made = false;
  const auto make = [&]() -> absl::StatusOr<int> {
    is_made = true;
    return 3;
  };
  EXPECT_EQ(inbox->Put(make).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(is_made);
  (void)inbox->Take(1);
  EXPECT_TRUE(inbox->Put(make).ok());
  EXPECT_EQ(inbox->Take(), Things({2, 3}));
}

TEST(InboxTest, WhatCannotBeMadeIsNotPut) {
  const std::unique_ptr<Inbox<int>> inbox = InboxOf({});
  const absl::Status status =
      inbox->Put([]() -> absl::StatusOr<int> { return absl::InternalError("no"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(IsReadable(*inbox));
  EXPECT_EQ(inbox->Take(), Things());
}

}  // namespace
}  // namespace osprey::rdma
