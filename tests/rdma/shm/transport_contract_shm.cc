// The shm transport under the contract.

#include "rdma/shm/domain.h"
#include "tests/rdma/transport_contract.h"
#include "tests/support/subprocess.h"

namespace osprey::rdma {
namespace {

class ShmFixture : public ContractFixture {
 public:
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
  const std::string directory_ = NewTemporaryDirectory();
  int next_ = 0;
};

}  // namespace

std::vector<std::string> ContractWays() { return {"shm"}; }
std::unique_ptr<ContractFixture> NewContractFixture(const std::string&) {
  return std::make_unique<ShmFixture>();
}

}  // namespace osprey::rdma
