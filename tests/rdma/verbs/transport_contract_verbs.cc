// The verbs transport under the contract. Needs an RDMA device, whose address is in LAB_IP (and its
// IPv6 address, if any, in LAB_IP6).

#include <cstdlib>

#include "rdma/verbs/domain.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

class VerbsFixture : public ContractFixture {
 public:
  explicit VerbsFixture(std::string host) : host_(std::move(host)) {}

  absl::StatusOr<std::unique_ptr<Domain>> OpenDomain(uint16_t version) override {
    VerbsDomainOptions options;
    options.protocol_version = version;
    return OpenVerbsDomain(options);
  }
  std::string ListenUri() override { return "rdma://" + host_ + ":0"; }
  // Below the ephemeral ports, and not used by the tests.
  std::string DeadUri() override { return "rdma://" + host_ + ":9"; }

 private:
  std::string host_;
};

}  // namespace

std::vector<std::string> ContractWays() {
  std::vector<std::string> ways = {"ipv4"};
  if (std::getenv("LAB_IP6") != nullptr) ways.push_back("ipv6");
  return ways;
}

std::unique_ptr<ContractFixture> NewContractFixture(const std::string& way) {
  const char* host = std::getenv(way == "ipv6" ? "LAB_IP6" : "LAB_IP");
  EXPECT_NE(host, nullptr) << "LAB_IP is not set: run this in tools/lab";
  const std::string text = host == nullptr ? "" : host;
  return std::make_unique<VerbsFixture>(way == "ipv6" ? "[" + text + "]" : text);
}

}  // namespace osprey::rdma
