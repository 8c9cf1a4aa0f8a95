// The proofs, against vectors of another implementation (Python's hmac and hashlib), and the key
// file.

#include "rdma/authentication.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

std::string HexOf(const Proof& proof) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(proof.data()), proof.size()});
}

std::vector<std::byte> Counting(int first, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; i++) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return bytes;
}

AuthKey::Pointer Key(const std::string& bytes) {
  absl::StatusOr<AuthKey::Pointer> key = AuthKey::FromBytes(bytes);
  EXPECT_TRUE(key.ok()) << key.status();
  return *key;
}

AuthKey::Pointer CountingKey() {
  std::string bytes;
  for (int i = 0; i < 32; i++) bytes += static_cast<char>(i);
  return Key(bytes);
}

Nonces SomeNonces() {
  Nonces nonces;
  for (size_t i = 0; i < 32; i++) {
    nonces.server[i] = static_cast<std::byte>(0xA0 + i % 16);
    nonces.client[i] = static_cast<std::byte>(0xC0 + i % 16);
  }
  return nonces;
}

constexpr uint64_t kAuthenticatedSession = 0x0123456789abcdef;

TEST(AuthenticationTest, ProofsAreWhatAnotherImplementationMakes) {
  const std::vector<std::byte> hello = Counting(0, 48), welcome = Counting(100, 120);
  EXPECT_EQ(HexOf(ClientProof(*CountingKey(), SomeNonces(), hello)),
            "06e45b417475371959371cf2c7d4e1ea931de199ec2c73fce62f96090ff310da");
  EXPECT_EQ(HexOf(ServerProof(*CountingKey(), SomeNonces(), kAuthenticatedSession, welcome)),
            "a1eccb402a6a980f1cb6544a1e4c5aa643d215db7e2557a06bf84cac5b8f9f69");
  // A key longer than a block of the hash.
  EXPECT_EQ(HexOf(ClientProof(*Key(std::string(131, '\xaa')), SomeNonces(), hello)),
            "e4e0389515508a49e04f366ab0c799e6d749ba1d5e90fd7bcfab08ad4bb4940d");
}

TEST(AuthenticationTest, EveryBitThatGoesInChangesTheProofs) {
  std::vector<std::byte> hello = Counting(0, 48), welcome = Counting(100, 120);
  Nonces nonces = SomeNonces();
  const AuthKey::Pointer key = CountingKey();
  const Proof of_client = ClientProof(*key, nonces, hello);
  const Proof of_server = ServerProof(*key, nonces, kAuthenticatedSession, welcome);
  const auto changed = [&](bool client, bool server) {
    EXPECT_EQ(SameProof(ClientProof(*key, nonces, hello), of_client), !client);
    EXPECT_EQ(SameProof(ServerProof(*key, nonces, kAuthenticatedSession, welcome), of_server),
              !server);
  };
  changed(false, false);
  const auto flip_all = [&](absl::Span<std::byte> bytes, bool client, bool server) {
    for (size_t bit = 0; bit < bytes.size() * 8; bit++) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      changed(client, server);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  };
  flip_all(absl::MakeSpan(nonces.server), true, true);
  flip_all(absl::MakeSpan(nonces.client), true, true);
  flip_all(absl::MakeSpan(hello), true, false);
  flip_all(absl::MakeSpan(welcome), false, true);
  for (int bit = 0; bit < 64; bit++) {
    EXPECT_FALSE(
        SameProof(ServerProof(*key, nonces, kAuthenticatedSession ^ (uint64_t{1} << bit), welcome),
                  of_server));
  }
  std::swap(nonces.server, nonces.client);
  changed(true, true);
}

TEST(AuthenticationTest, OneSidesProofIsNeverTheOthers) {
  // The same bytes after the nonces: only the label distinguishes them.
  std::vector<std::byte> hello = Counting(0, 48);
  uint64_t session = 0;
  std::memcpy(&session, hello.data(), sizeof(session));
  const Proof of_client = ClientProof(*CountingKey(), SomeNonces(), hello);
  const Proof of_server =
      ServerProof(*CountingKey(), SomeNonces(), session, absl::MakeSpan(hello).subspan(8));
  EXPECT_FALSE(SameProof(of_client, of_server));
}

TEST(AuthenticationTest, EveryBitOfAProofCounts) {
  const Proof proof = ClientProof(*CountingKey(), SomeNonces(), Counting(0, 48));
  EXPECT_TRUE(SameProof(proof, proof));
  for (size_t bit = 0; bit < proof.size() * 8; bit++) {
    Proof other = proof;
    other[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(SameProof(proof, other)) << "bit " << bit;
  }
}

TEST(AuthenticationTest, NoncesDiffer) {
  EXPECT_NE(RandomNonce(), RandomNonce());
  EXPECT_NE(RandomNonce(), Nonce());
}

TEST(AuthenticationTest, ANonceIsAllOfItsGenerator) {
  uint64_t last = 0;
  const Nonce nonce = NonceFrom([&] { return ++last; });
  uint64_t parts[4];
  std::memcpy(parts, nonce.data(), sizeof(parts));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(parts[i], i + 1);
  EXPECT_EQ(last, 4u);
}

TEST(AuthenticationTest, AKeyHas32To4096Bytes) {
  for (const size_t size : {0, 1, 31, 4097}) {
    EXPECT_EQ(AuthKey::FromBytes(std::string(size, 'k')).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  for (const size_t size : {32, 4096}) {
    EXPECT_TRUE(AuthKey::FromBytes(std::string(size, 'k')).ok()) << size;
  }
}

// --- The file ------------------------------------------------------------------------------------

class KeyFileTest : public testing::Test {
 protected:
  ~KeyFileTest() override { unlink(path_.c_str()); }

  absl::StatusOr<AuthKey::Pointer> Load(const std::string& bytes, mode_t mode = 0600) {
    unlink(path_.c_str());
    std::ofstream(path_, std::ios::binary) << bytes;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return AuthKey::FromFile(path_);
  }
  static std::string Bytes(const AuthKey& key) {
    return {reinterpret_cast<const char*>(key.data()), key.size()};
  }

  // The result of loading the file at `path_` as `user`: the error, or "" if the key is accepted.
  // The program may read all files, so only the check of the owner can refuse one.
  std::string AsUser(uid_t user) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::string said = "no such user";
      if (BecomeWithReadOfAllFiles(user)) said = MessageOf(AuthKey::FromFile(path_).status());
      _exit(write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    close(ends[1]);
    char said[1024];
    const ssize_t bytes = read(ends[0], said, sizeof(said));
    close(ends[0]);
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return {said, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }

  const std::string path_ = testing::TempDir() + "/auth_key_file_test";

 private:
  static std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }
  static bool BecomeWithReadOfAllFiles(uid_t user) {
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || setresuid(user, user, user) != 0) return false;
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    data[0].effective = data[0].permitted = 1u << CAP_DAC_READ_SEARCH;
    return syscall(SYS_capset, &header, data) == 0;
  }
};

TEST_F(KeyFileTest, ItsBytesAreTheKeyWithoutOneNewlineAtTheEnd) {
  const std::string raw = std::string("\0\n", 2) + std::string(38, '\xff');
  EXPECT_EQ(Bytes(**Load(raw)), raw);
  EXPECT_EQ(Bytes(**Load(raw + "\n")), raw);
  EXPECT_EQ(Bytes(**Load(raw + "\n\n")), raw + "\n");
  EXPECT_EQ(Load(std::string(4096, 'k') + "\n").value()->size(), 4096u);
}

TEST_F(KeyFileTest, RandomKeyEndingInANewlineIsUsedInFull) {
  const std::string raw = std::string(31, 'r') + "\n";
  EXPECT_EQ(Bytes(**Load(raw)), raw);
}

TEST_F(KeyFileTest, FileThatOthersCanAccessIsRefusedWithAFix) {
  for (const mode_t mode : {0640, 0604, 0620, 0601, 0644, 0666}) {
    const absl::Status status = Load(std::string(32, 'k'), mode).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "chmod 600 " + path_)) << status;
  }
  EXPECT_TRUE(Load(std::string(32, 'k'), 0400).ok());
}

TEST_F(KeyFileTest, FileOfAnotherUserIsRefusedWithAFix) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  constexpr uid_t kOther = 65534;
  ASSERT_TRUE(Load(std::string(32, 'k')).ok());
  EXPECT_EQ(AsUser(kOther), "");  // root's
  ASSERT_EQ(chown(path_.c_str(), kOther, 0), 0);
  EXPECT_EQ(AsUser(kOther), "");  // its own
  const absl::Status status = AuthKey::FromFile(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(),
            absl::StrCat("key file ", path_,
                         " belongs to user 65534; it must belong to root or to user 0, as which "
                         "this program runs; if the key in it is yours: chown 0 ",
                         path_));
  EXPECT_TRUE(absl::StrContains(AsUser(kOther - 1), "chown 65533 " + path_));
}

TEST_F(KeyFileTest, WrongLengthIsRefusedWithoutPrintingTheKey) {
  for (const size_t size : {0, 1, 31, 4098, 100000}) {
    const absl::Status status = Load(std::string(size, 'Q')).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path_)) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "Q")) << status;
  }
}

TEST_F(KeyFileTest, WhatIsNotAFileIsRefusedAndNotWaitedFor) {
  EXPECT_EQ(AuthKey::FromFile(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(AuthKey::FromFile(testing::TempDir()).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(AuthKey::FromFile(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace osprey::rdma
