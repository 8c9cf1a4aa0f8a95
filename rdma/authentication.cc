#include "rdma/authentication.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the session goes in as it lies in memory");
static_assert(sizeof(Proof) == crypto_auth_hmacsha256_BYTES);

using Label = std::array<char, 32>;
constexpr Label kClientLabel = {"osprey 3: proof of the client"};
constexpr Label kServerLabel = {"osprey 3: proof of the server"};
constexpr Label kServersLabel = {"osprey 3: servers of a cluster"};

// Computes a MAC, beginning with the part that all kinds share.
class Hash {
 public:
  Hash(const AuthKey& key, const Label& label, const Nonces& nonces) {
    crypto_auth_hmacsha256_init(&state_, key.data(), key.size());
    Add(label.data(), label.size());
    Add(nonces.server.data(), nonces.server.size());
    Add(nonces.client.data(), nonces.client.size());
  }
  // It holds data derived from the key.
  ~Hash() { sodium_memzero(&state_, sizeof(state_)); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  void Add(const void* data, size_t bytes) {
    crypto_auth_hmacsha256_update(&state_, static_cast<const unsigned char*>(data), bytes);
  }
  Proof Finish() {
    Proof proof;
    crypto_auth_hmacsha256_final(&state_, reinterpret_cast<unsigned char*>(proof.data()));
    return proof;
  }

 private:
  crypto_auth_hmacsha256_state state_;
};

std::string KeyFile(const std::string& path) { return absl::StrCat("key file ", path); }

constexpr absl::string_view kHowToMake =
    "; make one with (umask 077; head -c 32 /dev/urandom | base64 > FILE) and copy it to all "
    "servers and clients";

absl::Status CannotOpen(const std::string& path, int error) {
  const std::string what = absl::StrCat(KeyFile(path), " cannot be opened: ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(what, kHowToMake));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "; give it to the user that this program runs as (chown)"));
    default:
      return absl::InvalidArgumentError(what);
  }
}

absl::Status CheckFile(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(KeyFile(path), " is no regular file"));
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(KeyFile(path), " is not its owner's alone (mode ",
                     absl::Hex((info.st_mode >> 6) & 7), absl::Hex((info.st_mode >> 3) & 7),
                     absl::Hex(info.st_mode & 7), "); fix it with: chmod 600 ", path));
  }
  // The owner of a file can replace its key at any time, and could then read and answer in our
  // name.
  const uid_t user = geteuid();
  if (info.st_uid != 0 && info.st_uid != user) {
    return absl::PermissionDeniedError(absl::StrCat(
        KeyFile(path), " belongs to user ", info.st_uid, "; it must belong to root or to user ",
        user, ", as which this program runs; if the key in it is yours: chown ", user, " ", path));
  }
  return absl::OkStatus();
}

// Returns the number of bytes read, at most `bytes`, or a negative errno.
ssize_t ReadWhole(int fd, unsigned char* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = read(fd, data + done, bytes - done);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -errno;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

absl::StatusOr<AuthKey::Pointer> AuthKey::FromBytes(absl::string_view bytes) {
  if (bytes.size() < kAuthKeyBytesMin || bytes.size() > kAuthKeyBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the key has ", bytes.size(),
                                                   " bytes; it must have ", kAuthKeyBytesMin,
                                                   " to ", kAuthKeyBytesMax));
  }
  std::shared_ptr<AuthKey> key(new AuthKey());
  std::memcpy(key->bytes_.data(), bytes.data(), bytes.size());
  key->size_ = bytes.size();
  return Pointer(std::move(key));
}

absl::StatusOr<AuthKey::Pointer> AuthKey::FromFile(const std::string& path) {
  // Nonblocking, since open() of a pipe would wait for its writer.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return CannotOpen(path, errno);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return CannotOpen(path, errno);
  if (absl::Status status = CheckFile(path, info); !status.ok()) return status;
  // Room for a newline, and for one byte too many.
  std::array<unsigned char, kAuthKeyBytesMax + 2> bytes;
  const ssize_t got = ReadWhole(fd.get(), bytes.data(), bytes.size());
  if (got < 0) return CannotOpen(path, static_cast<int>(-got));
  size_t size = static_cast<size_t>(got);
  if (size > kAuthKeyBytesMin && bytes[size - 1] == '\n') --size;
  absl::StatusOr<Pointer> key = FromBytes({reinterpret_cast<const char*>(bytes.data()), size});
  sodium_memzero(bytes.data(), bytes.size());
  if (!key.ok()) {
    // Of a file that is too long, only enough was read to detect that.
    return absl::InvalidArgumentError(
        absl::StrCat(KeyFile(path), " holds ", size > kAuthKeyBytesMax ? "more than " : "",
                     std::min(size, kAuthKeyBytesMax), " bytes; a key has ", kAuthKeyBytesMin,
                     " to ", kAuthKeyBytesMax, kHowToMake));
  }
  return key;
}

AuthKey::~AuthKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

Proof ClientProof(const AuthKey& key, const Nonces& nonces,
                  absl::Span<const std::byte> hello_body) {
  Hash hash(key, kClientLabel, nonces);
  hash.Add(hello_body.data(), hello_body.size());
  return hash.Finish();
}

Proof ServerProof(const AuthKey& key, const Nonces& nonces, uint64_t session,
                  absl::Span<const std::byte> welcome_body) {
  Hash hash(key, kServerLabel, nonces);
  hash.Add(&session, sizeof(session));
  hash.Add(welcome_body.data(), welcome_body.size());
  return hash.Finish();
}

Proof ServersProof(const AuthKey& key, const Nonces& nonces, uint64_t cluster,
                   absl::string_view servers) {
  Hash hash(key, kServersLabel, nonces);
  hash.Add(&cluster, sizeof(cluster));
  hash.Add(servers.data(), servers.size());
  return hash.Finish();
}

bool SameProof(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Nonce RandomNonce() {
  // Thread-safe, and cheap after the first call.
  const int initialized = sodium_init();
  assert(initialized >= 0);
  (void)initialized;
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Nonce NonceFrom(absl::FunctionRef<uint64_t()> random) {
  Nonce nonce;
  for (size_t i = 0; i < nonce.size(); i += sizeof(uint64_t)) {
    const uint64_t part = random();
    std::memcpy(&nonce[i], &part, sizeof(part));
  }
  return nonce;
}

}  // namespace osprey::rdma
