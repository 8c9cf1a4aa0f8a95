// Reserved values: they appear when they are published, and leave nothing behind if they are not.

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/index/table_fixture.h"

namespace osprey::index {
namespace {

TEST(TableTest, ReservedValueAppearsWhenItIsPublished) {
  TableFixture f;
  f.Put("key", "old");
  absl::StatusOr<Reservation> reservation = f.table->Reserve("key", 1000, TestTime(1));
  ASSERT_TRUE(reservation.ok());
  ASSERT_EQ(reservation->value().size(), 1000u);
  EXPECT_EQ(f.Read("key").value, "old");
  const std::string value(1000, 'n');
  std::memcpy(reservation->value().data(), value.data(), value.size());
  EXPECT_EQ(f.Read("key").value, "old");
  const WriteResult published = f.table->Publish(*std::move(reservation), {}, TestTime(2));
  ASSERT_TRUE(published.status.ok());
  EXPECT_FALSE(reservation->valid());
  EXPECT_EQ(f.Read("key").value, value);
  EXPECT_EQ(f.Read("key", published.slot).counters.reads, 1u);
}

TEST(TableTest, AReservationMayBeHashedWhileItIsFilled) {
  TableFixture f;
  for (const size_t length : {1, 7, 8, 100, 5000, 100000}) {
    std::string value(length, 'v');
    for (size_t i = 0; i < length; ++i) value[i] = static_cast<char>('a' + i % 23 + i / 1000);
    for (const size_t piece : {size_t{1}, size_t{13}, size_t{4096}, length}) {
      absl::StatusOr<Reservation> reservation = f.table->Reserve("key", length, TestTime(1));
      ASSERT_TRUE(reservation.ok());
      // The last piece is left for Publish.
      for (size_t at = 0; at < length; at += piece) {
        const size_t bytes = std::min(piece, length - at);
        std::memcpy(reservation->value().data() + at, value.data() + at, bytes);
        if (at + bytes < length) reservation->Hash(bytes);
      }
      ASSERT_TRUE(f.table->Publish(*std::move(reservation), {}, TestTime(1)).status.ok());
      ASSERT_EQ(f.Read("key").value, value) << length << " in pieces of " << piece;
    }
  }
}

// Otherwise a long value would block all other requests when it is published.
TEST(TableTest, WhatWasHashedIsNotHashedAgain) {
  TableFixture f;
  absl::StatusOr<Reservation> reservation = f.table->Reserve("key", 5000, TestTime(1));
  std::memset(reservation->value().data(), 'v', 5000);
  reservation->Hash(5000);
  reservation->value()[100] = std::byte{'w'};  // not allowed here
  ASSERT_TRUE(f.table->Publish(*std::move(reservation), {}, TestTime(1)).status.ok());
  EXPECT_NE(f.Read("key").kind, Lookup::Kind::kHit);
}

TEST(TableTest, ReservationOutlivesOtherWritesOfItsKey) {
  TableFixture f;
  absl::StatusOr<Reservation> reservation = f.table->Reserve("key", 100, TestTime(1));
  ASSERT_TRUE(reservation.ok());
  std::memset(reservation->value().data(), 'r', 100);
  for (int i = 0; i < 50; ++i) {
    f.Put("key", std::string(10 + i * 20, 'o'));
    if (i % 3 == 0) f.Delete("key");
  }
  const uint64_t version = f.Put("key", "last").version;
  const WriteResult published = f.table->Publish(*std::move(reservation), {}, TestTime(2));
  ASSERT_TRUE(published.status.ok());
  EXPECT_GT(published.version, version);
  EXPECT_EQ(f.Read("key").value, std::string(100, 'r'));
  EXPECT_EQ(f.table->stats().keys, 1u);
}

TEST(TableTest, UnpublishedReservationLeavesNothingBehind) {
  TableFixture f;
  const uint64_t before = f.table->stats().item_bytes;
  const uint64_t version = f.Put("key", "old").version;
  for (int i = 0; i < 1000; ++i) {
    absl::StatusOr<Reservation> dropped = f.table->Reserve("key", 50000, TestTime(i));
    ASSERT_TRUE(dropped.ok()) << i;
    Reservation moved = *std::move(dropped);
    absl::StatusOr<Reservation> refused = f.table->Reserve("key", 50000, TestTime(i));
    ASSERT_TRUE(refused.ok()) << i;
    const WriteResult result =
        f.table->Publish(*std::move(refused), IfVersion(version + 1), TestTime(i));
    EXPECT_EQ(result.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(result.version, version);
    moved.Abort();
    EXPECT_FALSE(moved.valid());
  }
  EXPECT_EQ(f.table->stats().item_bytes, before);
  EXPECT_EQ(f.Read("key").value, "old");
}

}  // namespace
}  // namespace osprey::index
