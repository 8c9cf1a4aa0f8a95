// The shm transport under the contract.

#include <cstdlib>
#include <filesystem>

#include "rdma/shm/domain.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

class ShmFixture : public ContractFixture {
 public:
  ShmFixture() {
    char name[] = "/tmp/osprey-contract-XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  ~ShmFixture() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<std::unique_ptr<Domain>> OpenDomain(uint16_t version) override {
    ShmDomainOptions options;
    options.protocol_version = version;
    return OpenShmDomain(options);
  }
  std::string ListenUri() override {
    return "shm://" + directory_ + "/" + std::to_string(next_++) + ".sock";
  }
  std::string DeadUri() override { return "shm://" + directory_ + "/absent.sock"; }

 private:
  std::string directory_;
  int next_ = 0;
};

}  // namespace

std::vector<std::string> ContractWays() { return {"shm"}; }
std::unique_ptr<ContractFixture> NewContractFixture(const std::string&) {
  return std::make_unique<ShmFixture>();
}

}  // namespace osprey::rdma
