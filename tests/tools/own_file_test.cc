// Files that tools write by name: a trap that another user has put at the name is never written
// through, and what is written is its user's alone.

#include "tools/common/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kAnotherUser = 65534;

class OwnFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::ofstream(target_) << "precious"; }
  static std::string ContentsOf(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static struct stat Look(const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
    return status;
  }
  // Puts each trap at path_ and calls `judge` with its name.
  template <typename Judge>
  void ForEachTrap(Judge judge) {
    ASSERT_EQ(symlink(target_.c_str(), path_.c_str()), 0);
    judge("a symbolic link");
    unlink(path_.c_str());
    ASSERT_EQ(symlink((target_ + ".none").c_str(), path_.c_str()), 0);
    judge("a symbolic link to nothing");
    unlink(path_.c_str());
    ASSERT_EQ(link(target_.c_str(), path_.c_str()), 0);
    judge("a hard link");
    unlink(path_.c_str());
    ASSERT_EQ(mkfifo(path_.c_str(), 0666), 0);
    judge("a FIFO");
    unlink(path_.c_str());
    if (geteuid() != 0) return;  // only root can give a file away
    std::ofstream(path_) << "theirs";
    ASSERT_EQ(chown(path_.c_str(), kAnotherUser, kAnotherUser), 0);
    judge("another user's file");
    unlink(path_.c_str());
  }

  const std::string folder_ = NewTemporaryDirectory();
  const std::string path_ = folder_ + "/file";
  const std::string target_ = folder_ + "/target";
};

TEST_F(OwnFileTest, ACreatedFileIsNewWhateverHadItsName) {
  ForEachTrap([&](const char* trap) {
    const absl::StatusOr<rdma::UniqueFd> fd = CreateOwnFile(path_);
    ASSERT_TRUE(fd.ok()) << trap << ": " << fd.status();
    EXPECT_EQ(write(fd->get(), "mine", 4), 4);
    const struct stat status = Look(path_);
    EXPECT_TRUE(S_ISREG(status.st_mode)) << trap;
    EXPECT_EQ(status.st_uid, geteuid()) << trap;
    EXPECT_EQ(status.st_nlink, 1u) << trap;
    EXPECT_EQ(ContentsOf(path_), "mine") << trap;
    EXPECT_EQ(ContentsOf(target_), "precious") << trap;
    EXPECT_NE(access((target_ + ".none").c_str(), F_OK), 0) << trap;
  });
}

TEST_F(OwnFileTest, LinkMadeAtTheSameTimeIsNotFollowed) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) (void)!symlink(target_.c_str(), path_.c_str());
  });
  int refused = 0;
  for (int i = 0; i < 20'000 && (refused == 0 || i < 2'000); ++i) {
    const absl::StatusOr<rdma::UniqueFd> fd = CreateOwnFile(path_);
    if (fd.ok()) {
      EXPECT_EQ(write(fd->get(), "mine", 4), 4);
    } else {
      ++refused;
    }
  }
  done = true;
  other.join();
  EXPECT_GT(refused, 0) << "void unless the link was made between two calls";
  EXPECT_EQ(ContentsOf(target_), "precious");
}

TEST_F(OwnFileTest, WhatIsWrittenIsForItsUserAlone) {
  const mode_t before = umask(0);
  EXPECT_TRUE(CreateOwnFile(path_).ok());
  EXPECT_TRUE(ReplaceOwnFile(path_ + "2", "text").ok());
  umask(before);
  EXPECT_EQ(Look(path_).st_mode & 07777, 0600u);
  EXPECT_EQ(Look(path_ + "2").st_mode & 07777, 0600u);
}

TEST_F(OwnFileTest, OnlyThisUsersOwnFileIsGoneOnWith) {
  EXPECT_TRUE(absl::IsNotFound(OpenOwnFile(path_).status()));
  ForEachTrap([&](const char* trap) {
    for (const int flags : {0, O_APPEND | O_CREAT}) {
      const absl::Status status = OpenOwnFile(path_, flags).status();
      EXPECT_TRUE(absl::IsUnknown(status)) << trap << ": " << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(path_), HasSubstr("remove it, or write another name")));
    }
    EXPECT_EQ(ContentsOf(target_), "precious") << trap;
  });
  ASSERT_TRUE(ReplaceOwnFile(path_, "first").ok());
  const absl::StatusOr<rdma::UniqueFd> fd = OpenOwnFile(path_, O_APPEND);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(write(fd->get(), " second", 7), 7);
  EXPECT_EQ(ReadOwnFile(*fd, path_, 100).value(), "first second");
  EXPECT_EQ(ReadOwnFile(*fd, path_, 3).value(), "fir");
}

TEST_F(OwnFileTest, AReplacedFileIsCompleteAndNothingIsWrittenThrough) {
  ASSERT_EQ(symlink(target_.c_str(), (path_ + ".part").c_str()), 0);
  ASSERT_TRUE(ReplaceOwnFile(path_, "one").ok());
  ASSERT_TRUE(ReplaceOwnFile(path_, "two").ok());
  EXPECT_EQ(ContentsOf(path_), "two");
  EXPECT_EQ(ContentsOf(target_), "precious");
  EXPECT_NE(access((path_ + ".part").c_str(), F_OK), 0);
}

TEST_F(OwnFileTest, AFolderAtTheNameIsSaidWithWhatToDo) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_THAT(
      std::string(CreateOwnFile(path_).status().message()),
      AllOf(HasSubstr(path_), HasSubstr("cannot be removed"), HasSubstr("write another name")));
  EXPECT_THAT(std::string(OpenOwnFile(path_).status().message()), HasSubstr("no regular file"));
  EXPECT_THAT(std::string(ReplaceOwnFile(path_, "x").message()), HasSubstr("renamed"));
  EXPECT_THAT(std::string(CreateOwnFile("/absent/x").status().message()),
              AllOf(HasSubstr("/absent/x cannot be created"), HasSubstr("folder of your own")));
}

TEST_F(OwnFileTest, OnlyARegularFileIsToBeReplaced) {
  EXPECT_TRUE(CheckReplaceable(path_).ok());
  EXPECT_TRUE(CheckReplaceable(target_).ok());
  ForEachTrap([&](const char* trap) {
    // A hard link loses its name, and root may replace any file.
    const bool is_regular = S_ISREG(Look(path_).st_mode);
    EXPECT_EQ(CheckReplaceable(path_).ok(), is_regular) << trap;
  });
}

TEST_F(OwnFileTest, ANameThatWasTakenOverIsNoticed) {
  const absl::StatusOr<rdma::UniqueFd> fd = CreateOwnFile(path_);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_TRUE(IsStillNamed(fd->get(), path_));
  ASSERT_TRUE(ReplaceOwnFile(path_, "x").ok());
  EXPECT_FALSE(IsStillNamed(fd->get(), path_));
  unlink(path_.c_str());
  EXPECT_FALSE(IsStillNamed(fd->get(), path_));
}

}  // namespace
}  // namespace osprey
